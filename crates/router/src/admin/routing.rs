//! What this router's routing table says: flushRouterConfig, getShardMap, getShardVersion, netstat

use bytes::BytesMut;
use chunk_map::{CollectionRouting, Namespace};
use document::{Value, splice};

use super::chunks::not_sharded;
use crate::command::Op;
use crate::ddl::arguments;
use crate::ddl::scatter::{database_not_found, fresh_route};
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Most bytes of chunk bounds in a reply: it has to stay a document.
const MAX_CHUNKS_BYTES: usize = 15 * 1024 * 1024;

/// Forgets all, a database or a collection.
pub async fn flush_router_config(op: &Op<'_>) -> CommandResult<Reply> {
    let catalog = op.router.catalog();
    match op.request.target {
        Value::String(_) => {
            let name = op.request.target.as_str().unwrap_or_default();
            if name.contains('.') {
                catalog.forget_collection(&arguments::parse_namespace(name)?);
            } else {
                arguments::check_database_name(name)?;
                catalog.forget_database(name);
            }
        }
        value if value.is_number() || value.as_bool().is_some() => catalog.forget_all(),
        value => {
            return Err(CommandError::wrong_type("flushRouterConfig.flushRouterConfig", value, "string"));
        }
    }
    Ok(Reply::build(|out| {
        splice::put_bool(out, "flushed", true);
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// Which shard is where.
pub async fn get_shard_map(op: &Op<'_>) -> CommandResult<Reply> {
    let shards =
        op.router.registry().list().await.map_err(|error| crate::remote::routing::catalog_error(&error))?;
    let config = op.router.servers().config_set().connection_string();
    // (id, connection string, members)
    let mut sets: Vec<(String, String)> =
        shards.iter().map(|shard| (shard.id.to_string(), shard.host.to_string())).collect();
    sets.sort();
    sets.push(("config".to_owned(), config.to_string()));
    let hosts = |connection: &str| -> Vec<String> {
        let members = connection.split_once('/').map_or(connection, |(_, members)| members);
        members.split(',').map(str::to_owned).collect()
    };
    Ok(Reply::build(|out| {
        let map = splice::open_doc(out, "map");
        for (id, connection) in &sets {
            splice::put_str(out, id, connection);
        }
        map.finish(out);
        let by_host = splice::open_doc(out, "hosts");
        for (id, connection) in &sets {
            for host in hosts(connection) {
                splice::put_str(out, &host, id);
            }
        }
        by_host.finish(out);
        let strings = splice::open_doc(out, "connStrings");
        for (id, connection) in &sets {
            splice::put_str(out, connection, id);
        }
        strings.finish(out);
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// The version of a collection, or the primary shard and version of a database.
pub async fn get_shard_version(op: &Op<'_>) -> CommandResult<Reply> {
    let name = op.request.target.as_str().ok_or_else(|| {
        CommandError::bad_value(format!(
            "collection name has invalid type {}",
            op.request.target.element_type().name()
        ))
    })?;
    if !name.contains('.') {
        arguments::check_database_name(name)?;
        let database = op.router.database(name).await?;
        return Ok(Reply::build(|out| {
            splice::put_str(out, "primaryShard", database.primary.as_str());
            if let Some(version) = database.version {
                splice::put_element(out, 0x03, "version", &version.to_document());
            }
            splice::put_f64(out, "ok", 1.0);
        }));
    }
    let ns: Namespace = arguments::parse_namespace(name)?;
    let route = fresh_route(op, &ns).await?.ok_or_else(|| database_not_found(ns.db()))?;
    let routing = route.sharded().ok_or_else(|| not_sharded(&ns))?;
    let full = op.request.body.get("fullMetadata").is_some_and(Value::is_truthy);
    Ok(Reply::build(|out| {
        splice::put_timestamp(out, "version", routing.chunks.version());
        splice::put_element(out, 0x07, "versionEpoch", &routing.epoch);
        splice::put_timestamp(out, "versionTimestamp", routing.timestamp);
        if full {
            put_chunks(out, routing);
        }
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// `chunks: [[min, max], ...]`, none at all when they would not fit (mongos 5.0).
fn put_chunks(out: &mut BytesMut, routing: &CollectionRouting) {
    let start = out.len();
    let chunks = splice::open_array(out, "chunks");
    for (index, chunk) in routing.chunks.iter().enumerate() {
        let bounds = splice::open_array(out, &index.to_string());
        let pattern = &routing.key;
        splice::put_doc(out, "0", pattern.name_fields(chunk.min()).as_doc());
        let max = chunk.max().map_or_else(
            || pattern.name_fields(pattern.global_max().as_doc()),
            |max| pattern.name_fields(max),
        );
        splice::put_doc(out, "1", max.as_doc());
        bounds.finish(out);
        if out.len() - start > MAX_CHUNKS_BYTES {
            out.truncate(start);
            return;
        }
    }
    chunks.finish(out);
}

/// Whom this router asks.
pub async fn netstat(op: &Op<'_>) -> CommandResult<Reply> {
    let config = op.router.servers().config_set().connection_string().to_string();
    Ok(Reply::build(|out| {
        splice::put_str(out, "configserver", &config);
        splice::put_i32(out, "isdbgrid", 1);
        splice::put_f64(out, "ok", 1.0);
    }))
}
