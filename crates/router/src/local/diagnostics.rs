//! What an operator asks a router: its machine, its log, its options, its connections.

use document::{DocBuf, DocWriter};
use topology::{MemberKind, PoolStats};

use super::host;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

fn long(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// `hostInfo`
pub async fn host_info(op: &Op<'_>) -> CommandResult<Reply> {
    let memory = host::machine_memory_mib();
    let mut doc = DocBuf::new();
    doc.append_doc("system", |w| {
        w.put("currentTime", host::now());
        w.put("hostname", op.router.settings().host.as_str());
        w.put("cpuAddrSize", 64);
        w.put("memSizeMB", memory);
        w.put("memLimitMB", memory);
        w.put("numCores", host::cores());
        w.put("cpuArch", std::env::consts::ARCH);
        w.put("numaEnabled", false);
    });
    doc.append_doc("os", |w| {
        w.put("type", "Linux");
        w.put("name", &host::distribution());
        w.put("version", &format!("Kernel {}", host::kernel()));
    });
    doc.append_doc("extra", |w| w.put("kernelVersion", &host::kernel()));
    Ok(Reply::ok_with(doc.as_doc()))
}

/// `getLog`
pub async fn get_log(op: &Op<'_>) -> CommandResult<Reply> {
    let target = op.request.target;
    let Some(name) = target.as_str() else {
        return Err(CommandError::wrong_type("getLog.getLog", target, "string"));
    };
    let mut doc = DocBuf::new();
    if name == "*" {
        doc.write(|w| w.array("names", ["global", "startupWarnings"], |w, index, name| w.put(index, name)));
        return Ok(Reply::ok_with(doc.as_doc()));
    }
    let Some(log) = op.router.settings().log.read(name) else {
        return Err(CommandError::new(crate::ErrorCode::OperationFailed, format!("No log named '{name}'")));
    };
    doc.append("totalLinesWritten", log.total);
    doc.write(|w| w.array("log", &log.lines, |w, index, line| w.put(index, line.as_ref())));
    Ok(Reply::ok_with(doc.as_doc()))
}

/// `getCmdLineOpts`
pub async fn get_cmd_line_opts(op: &Op<'_>) -> CommandResult<Reply> {
    let settings = op.router.settings();
    let mut doc = DocBuf::new();
    doc.write(|w| w.array("argv", &settings.argv, |w, index, argument| w.put(index, argument)));
    doc.append("parsed", &settings.parsed_options);
    Ok(Reply::ok_with(doc.as_doc()))
}

/// `connPoolStats`: one pool, for the router has one for each server.
pub async fn conn_pool_stats(op: &Op<'_>) -> CommandResult<Reply> {
    let servers = op.router.servers();
    let mut sets = servers.topology().sets();
    sets.sort_by(|a, b| a.name().cmp(b.name()));
    let mut hosts: Vec<(String, PoolStats)> = Vec::new();
    for set in &sets {
        for server in set.description().servers() {
            hosts.push((server.address().to_string(), server.pool_stats()));
        }
    }
    let sum = |field: fn(&PoolStats) -> usize| hosts.iter().map(|(_, stats)| field(stats)).sum::<usize>();
    let created = hosts.iter().map(|(_, stats)| stats.created).sum::<u64>();
    let mut doc = DocBuf::new();
    doc.write(|w| {
        w.put("numClientConnections", 0);
        w.put("numAScopedConnections", 0);
        w.put("totalInUse", count(sum(|stats| stats.in_use)));
        w.put("totalAvailable", count(sum(|stats| stats.idle)));
        w.put("totalCreated", long(created));
        w.put("totalRefreshing", count(sum(|stats| stats.connecting)));
        w.put("replicaSetMatchingStrategy", "automatic");
        w.doc("pools", |w| {
            w.doc("global", |w| {
                w.put("poolInUse", count(sum(|stats| stats.in_use)));
                w.put("poolAvailable", count(sum(|stats| stats.idle)));
                w.put("poolCreated", long(created));
                w.put("poolRefreshing", count(sum(|stats| stats.connecting)));
                write_hosts(&hosts, w);
            });
        });
        w.doc("hosts", |w| write_hosts(&hosts, w));
        w.doc("replicaSets", |w| {
            for set in &sets {
                w.doc(set.name(), |w| {
                    w.array("hosts", set.description().members(), |w, index, member| {
                        w.doc(index, |w| write_member(&member, w));
                    });
                });
            }
        });
        w.put("ok", 1.0);
    });
    Ok(Reply::from_doc(doc.as_doc()))
}

fn write_hosts(hosts: &[(String, PoolStats)], w: &mut DocWriter<'_>) {
    for (address, stats) in hosts {
        w.doc(address, |w| {
            w.put("inUse", count(stats.in_use));
            w.put("available", count(stats.idle));
            w.put("created", long(stats.created));
            w.put("refreshing", count(stats.connecting));
        });
    }
}

fn write_member(member: &topology::MemberView, w: &mut DocWriter<'_>) {
    w.put("addr", member.address.as_str());
    w.put("ok", member.kind != MemberKind::Unknown);
    w.put("ismaster", member.kind == MemberKind::Primary);
    w.put("hidden", false);
    w.put("secondary", member.kind == MemberKind::Secondary);
    if let Some(time) = member.round_trip {
        w.put("pingTimeMillis", i32::try_from(time.as_millis()).unwrap_or(i32::MAX));
    }
}

/// `replSetGetStatus`: tools learn from this error that they speak to a router.
pub async fn repl_set_get_status(_op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::without_code("replSetGetStatus is not supported through mongos")
        .with_extra("info", "mongos"))
}
