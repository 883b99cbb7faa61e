//! Counters of the cache, in serverStatus's terms (`shardingStatistics.catalogCache`).

use std::sync::atomic::{AtomicU64, Ordering};

use document::DocWriter;

/// What a cache did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the names are the server's
pub struct CacheStatistics {
    pub num_database_entries: u64,
    pub num_collection_entries: u64,
    pub count_stale_config_errors: u64,
    pub total_refresh_wait_time_micros: u64,
    pub num_active_incremental_refreshes: u64,
    pub count_incremental_refreshes_started: u64,
    pub num_active_full_refreshes: u64,
    pub count_full_refreshes_started: u64,
    pub count_failed_refreshes: u64,
}

impl CacheStatistics {
    /// Writes the fields of `catalogCache`.
    pub fn write(&self, w: &mut DocWriter<'_>) {
        for (name, count) in [
            ("numDatabaseEntries", self.num_database_entries),
            ("numCollectionEntries", self.num_collection_entries),
            ("countStaleConfigErrors", self.count_stale_config_errors),
            ("totalRefreshWaitTimeMicros", self.total_refresh_wait_time_micros),
            ("numActiveIncrementalRefreshes", self.num_active_incremental_refreshes),
            ("countIncrementalRefreshesStarted", self.count_incremental_refreshes_started),
            ("numActiveFullRefreshes", self.num_active_full_refreshes),
            ("countFullRefreshesStarted", self.count_full_refreshes_started),
            ("countFailedRefreshes", self.count_failed_refreshes),
        ] {
            w.put(name, i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// The counters themselves.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) stale_config_errors: Counter,
    pub(super) refresh_wait_micros: Counter,
    pub(super) active_incremental: Counter,
    pub(super) incremental_started: Counter,
    pub(super) active_full: Counter,
    pub(super) full_started: Counter,
    pub(super) failed: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one until the guard goes: a future that is dropped cannot leave it behind.
    pub(super) fn active(&self) -> Active<'_> {
        self.add(1);
        Active(self)
    }
}

pub(super) struct Active<'c>(&'c Counter);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
