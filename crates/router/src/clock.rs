//! The three times that are gossiped: `$clusterTime`, `$configTime`, `$topologyTime`.
//!
//! Only values that the cluster sent are ever echoed: an invented `$topologyTime` wedges a shard for good (seen on
//! 6.0.5), so the two internal times are never taken from a client.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use document::{Doc, Timestamp, splice};

use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// A year: no cluster time may be further ahead of the wall clock (`maxAcceptableLogicalClockDriftSecs`).
const MAX_DRIFT_SECONDS: u64 = 31_536_000;

/// The highest times seen.
#[derive(Debug, Default)]
pub struct Clock {
    cluster: AtomicU64,
    config: AtomicU64,
    topology: AtomicU64,
}

impl Clock {
    /// The highest cluster time seen, if any was.
    #[must_use]
    pub fn cluster_time(&self) -> Option<Timestamp> {
        known(&self.cluster)
    }

    /// The config servers' last known majority-committed time: floor of every metadata read.
    #[must_use]
    pub fn config_time(&self) -> Option<Timestamp> {
        known(&self.config)
    }

    /// The time of the last change of the shard list.
    #[must_use]
    pub fn topology_time(&self) -> Option<Timestamp> {
        known(&self.topology)
    }

    /// Takes over what a server's reply says.
    pub fn observe(&self, times: &Times) {
        advance(&self.cluster, times.cluster);
        advance(&self.config, times.config);
        advance(&self.topology, times.topology);
    }

    /// Takes over the `$clusterTime` of a client. Without authentication no signature can be checked; a time that
    /// is too far ahead is refused, since it would push the clocks of the whole cluster.
    pub fn observe_client(&self, cluster_time: Doc<'_>) -> CommandResult<()> {
        let Some(time) = cluster_time.get("clusterTime").and_then(document::Value::as_timestamp) else {
            return Err(CommandError::new(ErrorCode::NoSuchKey, "Missing expected field \"clusterTime\""));
        };
        if !cluster_time.contains("signature") {
            return Err(CommandError::new(ErrorCode::NoSuchKey, "Missing expected field \"signature\""));
        }
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since_epoch| since_epoch.as_secs());
        if u64::from(time.seconds) > now + MAX_DRIFT_SECONDS {
            return Err(CommandError::new(
                ErrorCode::ClusterTimeFailsRateLimiter,
                format!(
                    "New cluster time, {}, is too far from this node's wall clock time, {now}.",
                    time.seconds
                ),
            ));
        }
        advance(&self.cluster, Some(time));
        Ok(())
    }

    /// Writes what every request to a server of the cluster carries.
    pub fn write_request(&self, out: &mut BytesMut) {
        if let Some(time) = self.cluster_time() {
            write_cluster_time(out, time);
        }
        if let Some(time) = self.config_time() {
            splice::put_timestamp(out, "$configTime", time);
        }
        if let Some(time) = self.topology_time() {
            splice::put_timestamp(out, "$topologyTime", time);
        }
    }

    /// Writes what every reply to a client carries.
    pub fn write_reply(&self, out: &mut BytesMut, operation_time: Option<Timestamp>) {
        let Some(cluster_time) = self.cluster_time() else { return };
        splice::put_timestamp(out, "operationTime", operation_time.unwrap_or(cluster_time));
        write_cluster_time(out, cluster_time);
    }
}

/// The times in one reply of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// `$clusterTime.clusterTime`
    pub cluster: Option<Timestamp>,
    /// `operationTime`
    pub operation: Option<Timestamp>,
    /// `$configTime`
    pub config: Option<Timestamp>,
    /// `$topologyTime`
    pub topology: Option<Timestamp>,
}

fn known(time: &AtomicU64) -> Option<Timestamp> {
    match time.load(Ordering::Acquire) {
        0 => None,
        raw => Some(Timestamp::from_u64(raw)),
    }
}

fn advance(time: &AtomicU64, seen: Option<Timestamp>) {
    if let Some(seen) = seen {
        // A plain load first: most replies bring nothing new, and a shared line that is only read stays shared.
        if seen.as_u64() > time.load(Ordering::Relaxed) {
            time.fetch_max(seen.as_u64(), Ordering::AcqRel);
        }
    }
}

/// `$clusterTime` with the dummy signature that servers make and take when no one is authenticated (6.0.5).
fn write_cluster_time(out: &mut BytesMut, time: Timestamp) {
    let outer = splice::open_doc(out, "$clusterTime");
    splice::put_timestamp(out, "clusterTime", time);
    let signature = splice::open_doc(out, "signature");
    splice::put_element(out, 0x05, "hash", &[20, 0, 0, 0, 0]);
    out.extend_from_slice(&[0; 20]);
    splice::put_i64(out, "keyId", 0);
    signature.finish(out);
    outer.finish(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_only_go_forward() {
        let clock = Clock::default();
        assert_eq!(clock.cluster_time(), None);
        let at = |seconds| Times { cluster: Some(Timestamp::new(seconds, 1)), ..Times::default() };
        clock.observe(&at(5));
        clock.observe(&at(3));
        assert_eq!(clock.cluster_time(), Some(Timestamp::new(5, 1)));
        assert_eq!(clock.config_time(), None);
    }

    #[test]
    fn a_time_far_ahead_of_the_wall_clock_is_refused() {
        let clock = Clock::default();
        let far = bson::rawdoc! {
            "clusterTime": bson::Timestamp { time: u32::MAX, increment: 1 },
            "signature": { "hash": "", "keyId": 0_i64 },
        };
        let error = clock.observe_client(Doc::new(far.as_bytes()).unwrap()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ClusterTimeFailsRateLimiter);
        assert_eq!(clock.cluster_time(), None);
    }
}
