//! listCollections, listDatabases

use std::collections::BTreeMap;

use chunk_map::ShardId;
use document::{Doc, Value, splice};

use super::arguments::{self, Kind, optional};
use super::scatter::{all_or_error, ask_all, every_shard};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::CursorKind;
use crate::error::{CommandError, CommandResult};
use crate::read::open;
use crate::remote::routing::{Destination, StaleRetries};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// Where the cursors of listCollections live.
const CURSOR: &str = "$cmd.listCollections";

/// The collections and views of a database, as its primary shard has them.
pub async fn list_collections(op: &Op<'_>) -> CommandResult<Reply> {
    let mut retries = StaleRetries::new(op.router);
    loop {
        match collections_once(op).await {
            Err(error) if retries.again(&error) => {}
            other => return other,
        }
    }
}

async fn collections_once(op: &Op<'_>) -> CommandResult<Reply> {
    let db = op.request.db;
    let namespace = format!("{db}.{CURSOR}");
    let database = match op.router.database(db).await {
        Ok(database) => database,
        Err(error) if error.code() == ErrorCode::NamespaceNotFound => return Ok(open::empty(&namespace)),
        Err(error) => return Err(error),
    };
    let destination =
        if database.primary.is_config() { Destination::config() } else { Destination::primary(&database) };
    let mut request = ShardRequest::copy(op, |_| false).finish(|out| destination.versions.write(out))?;
    let set = op.router.shard_set(&destination.shard).await?;
    let preference = op.read_preference()?;
    let servers = op.router.servers();
    let answer = servers.ask_set(&set, &mut request, &preference, Retry::Idempotent, op.deadline).await?;
    Ok(open::pass_through(op, &destination.shard, set, answer, CURSOR, || {
        open::owner(op, &namespace, CursorKind::Normal, false)
    }))
}

const LIST_DATABASES: &[arguments::Argument] = &[
    optional("nameOnly", Kind::SafeBool),
    optional("filter", Kind::Object),
    optional("authorizedDatabases", Kind::Bool),
];

/// One database over all shards.
#[derive(Default)]
struct Database {
    size: i64,
    empty: bool,
    shards: BTreeMap<ShardId, i64>,
}

/// The databases of all shards and of the config servers.
pub async fn list_databases(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::check(op, LIST_DATABASES)?;
    let name_only = op.request.body.get("nameOnly").is_some_and(Value::is_truthy);
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
    splice::put_i32(request.out(), "listDatabases", 1);
    arguments::copy(op, request.out(), &["filter", "nameOnly"]);
    let template = request.template_on("admin");
    let mut asked = every_shard(op).await?;
    asked.push(Destination::config());
    let answers = ask_all(op, &template, &asked, &op.read_preference()?, Retry::Idempotent).await;
    let mut databases: BTreeMap<String, Database> = BTreeMap::new();
    for (answer, body) in all_or_error(&answers)? {
        add(&mut databases, &answer.shard, body)?;
    }
    Ok(Reply::build(|out| {
        let list = splice::open_array(out, "databases");
        for (index, (name, database)) in databases.iter().enumerate() {
            let item = splice::open_doc(out, &index.to_string());
            splice::put_str(out, "name", name);
            if !name_only {
                splice::put_i64(out, "sizeOnDisk", database.size);
                splice::put_bool(out, "empty", database.empty);
                let shards = splice::open_doc(out, "shards");
                for (shard, size) in &database.shards {
                    splice::put_i64(out, shard.as_str(), *size);
                }
                shards.finish(out);
            }
            item.finish(out);
        }
        list.finish(out);
        if !name_only {
            let total: i64 = databases.values().map(|database| database.size).sum();
            splice::put_i64(out, "totalSize", total);
            splice::put_i64(out, "totalSizeMb", total / (1024 * 1024));
        }
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// `local` belongs to each member, `admin` to the config servers; `config` is listed with all its parts.
fn add(databases: &mut BTreeMap<String, Database>, shard: &ShardId, body: Doc<'_>) -> CommandResult<()> {
    let malformed =
        || CommandError::new(ErrorCode::InternalError, "a shard's listDatabases has no databases");
    for item in body.get_array("databases").ok_or_else(malformed)? {
        let item = item.value().as_doc().ok_or_else(malformed)?;
        let name = item.get_str("name").ok_or_else(malformed)?;
        let counts = match name {
            "local" => false,
            "admin" => shard.is_config(),
            "config" => true,
            _ => !shard.is_config(),
        };
        if counts {
            let size = item.get_i64("sizeOnDisk").unwrap_or(0);
            let database =
                databases.entry(name.to_owned()).or_insert(Database { empty: true, ..Database::default() });
            database.size += size;
            // A size of 1 is what an empty database reports.
            database.empty &= size <= 1;
            database.shards.insert(shard.clone(), size);
        }
    }
    Ok(())
}
