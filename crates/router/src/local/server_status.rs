//! `serverStatus`: sections and counters of a mongos, one row a section.

use document::{DocBuf, DocWriter, Value};

use super::host;
use super::stats::{REACH, TARGETED, Totals};
use crate::command::Op;
use crate::error::CommandResult;
use crate::reply::Reply;

fn long(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Sections that are left out with `<name>: 0`.
type Section = (&'static str, fn(&Op<'_>, &Totals, &mut DocWriter<'_>));

const SECTIONS: &[Section] = &[
    ("asserts", |_, totals, w| {
        for name in ["regular", "warning", "msg"] {
            w.put(name, 0);
        }
        w.put("user", long(totals.failed));
        w.put("tripwire", 0);
        w.put("rollovers", 0);
    }),
    ("connections", connections),
    ("defaultRWConcern", |op, _, w| {
        let defaults = op.router.defaults();
        let read = defaults.read_concern();
        if !read.as_doc().is_empty() {
            w.put("defaultReadConcern", &without_provenance(&read));
        }
        w.put("defaultWriteConcern", &without_provenance(&defaults.write_concern()));
        w.put("localUpdateWallClockTime", host::now());
    }),
    ("extra_info", |_, _, w| {
        w.put("note", "fields vary by platform");
        w.put("page_faults", host::page_faults());
    }),
    ("hedgingMetrics", |op, _, w| {
        let names = ["numTotalOperations", "numTotalHedgedOperations", "numAdvantageouslyHedgedOperations"];
        for (name, count) in names.into_iter().zip(op.router.servers().hedges().get()) {
            w.put(name, long(count));
        }
    }),
    ("logicalSessionRecordCache", |op, _, w| op.router.sessions().write_status(w)),
    ("network", |_, totals, w| {
        w.put("bytesIn", long(totals.bytes_in));
        w.put("bytesOut", long(totals.bytes_out));
        w.put("numSlowDNSOperations", 0_i64);
        w.put("numSlowSSLOperations", 0_i64);
        w.put("numRequests", long(totals.requests));
    }),
    ("opcounters", |_, totals, w| {
        for (name, n) in [
            ("insert", totals.insert),
            ("query", totals.query),
            ("update", totals.update),
            ("delete", totals.delete),
            ("getmore", totals.getmore),
            ("command", totals.command),
        ] {
            w.put(name, long(n));
        }
    }),
    ("sharding", |op, _, w| {
        let servers = op.router.servers();
        w.put("configsvrConnectionString", &servers.config_set().connection_string().to_string());
        if let Some(time) = servers.clock().config_time() {
            w.doc("lastSeenConfigServerOpTime", |w| {
                w.put("ts", time);
                w.put("t", -1_i64);
            });
        }
        w.put("maxChunkSizeInBytes", 134_217_728_i64);
    }),
    ("shardingStatistics", sharding_statistics),
    ("transactions", |op, _, w| op.router.transactions().write_status(w)),
    ("mem", |_, _, w| {
        let (resident, size) = host::memory_mib();
        w.put("bits", 64);
        w.put("resident", i32::try_from(resident).unwrap_or(i32::MAX));
        w.put("virtual", i32::try_from(size).unwrap_or(i32::MAX));
        w.put("supported", true);
    }),
    ("metrics", metrics),
    ("pointsman", |op, _, w| {
        w.put("version", env!("CARGO_PKG_VERSION"));
        let cursors = op.router.cursors().counts();
        w.put("cursorsOfGoneClients", long(cursors.abandoned));
        w.put("unknownCursors", long(cursors.unknown));
        w.put("foreignTransactionStatements", long(op.router.transactions().stats().foreign_statements()));
    }),
];

fn connections(op: &Op<'_>, totals: &Totals, w: &mut DocWriter<'_>) {
    w.put("current", long(totals.connections));
    w.put("available", long(totals.max_connections.saturating_sub(totals.connections)));
    w.put("totalCreated", long(totals.connections_created));
    w.put("rejected", long(totals.connections_rejected));
    w.put("active", long(totals.active));
    // Every connection is a task; the name is that of mongos.
    w.put("threaded", long(totals.connections));
    w.put("awaitingTopologyChanges", long(op.router.stats().waiting_hellos()));
}

fn sharding_statistics(op: &Op<'_>, _: &Totals, w: &mut DocWriter<'_>) {
    w.doc("numHostsTargeted", |w| {
        for (name, reached) in TARGETED.iter().zip(op.router.stats().targeted()) {
            w.doc(name, |w| {
                for (reach, n) in REACH.iter().zip(reached) {
                    w.put(reach, long(n));
                }
            });
        }
    });
    let cache = op.router.catalog().statistics();
    w.doc("catalogCache", |w| {
        for (name, n) in [
            ("numDatabaseEntries", cache.num_database_entries),
            ("numCollectionEntries", cache.num_collection_entries),
            ("countStaleConfigErrors", cache.count_stale_config_errors),
            ("totalRefreshWaitTimeMicros", cache.total_refresh_wait_time_micros),
            ("numActiveIncrementalRefreshes", cache.num_active_incremental_refreshes),
            ("countIncrementalRefreshesStarted", cache.count_incremental_refreshes_started),
            ("numActiveFullRefreshes", cache.num_active_full_refreshes),
            ("countFullRefreshesStarted", cache.count_full_refreshes_started),
            ("countFailedRefreshes", cache.count_failed_refreshes),
        ] {
            w.put(name, long(n));
        }
    });
}

fn metrics(op: &Op<'_>, _: &Totals, w: &mut DocWriter<'_>) {
    let (unknown, commands) = op.router.stats().of_commands();
    w.doc("commands", |w| {
        w.put("<UNKNOWN>", long(unknown));
        for (name, total, failed) in commands {
            w.doc(name, |w| {
                w.put("failed", long(failed));
                w.put("total", long(total));
            });
        }
    });
    let cursors = op.router.cursors();
    let counts = cursors.counts();
    w.doc("cursor", |w| {
        w.put("timedOut", long(counts.timed_out));
        w.put("totalOpened", long(counts.opened));
        w.doc("open", |w| {
            w.put("pinned", long(counts.pinned));
            w.put("multiTarget", long(counts.multi_target));
            w.put("singleTarget", long(counts.single_target));
            w.put("total", long(cursors.len() as u64));
        });
    });
}

fn without_provenance(concern: &DocBuf) -> DocBuf {
    let mut out = DocBuf::new();
    for field in concern.as_doc().iter().filter(|field| field.name() != "provenance") {
        out.append(field.name(), field.value());
    }
    out
}

/// Runs it.
pub async fn server_status(op: &Op<'_>) -> CommandResult<Reply> {
    let router = op.router;
    let totals = router.stats().totals();
    let up = router.started().elapsed().unwrap_or_default();
    let mut doc = DocBuf::with_capacity(16 * 1024);
    doc.write(|w| {
        w.put("host", router.settings().host.as_str());
        w.put("version", crate::SERVER_VERSION);
        w.put("process", "mongos");
        w.put("pid", i64::from(std::process::id()));
        w.put("uptime", up.as_secs_f64().floor());
        w.put("uptimeMillis", i64::try_from(up.as_millis()).unwrap_or(i64::MAX));
        w.put("uptimeEstimate", i64::try_from(up.as_secs()).unwrap_or(i64::MAX));
        w.put("localTime", host::now());
        for (name, fill) in SECTIONS {
            if op.request.body.get(name).is_none_or(Value::is_truthy) {
                w.doc(name, |w| fill(op, &totals, w));
            }
        }
        w.put("ok", 1.0);
    });
    Ok(Reply::from_doc(doc.as_doc()))
}
