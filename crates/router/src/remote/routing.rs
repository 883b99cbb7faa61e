//! Routing snapshots for handlers, and what a stale answer invalidates.

use std::sync::Arc;

use bytes::BytesMut;
use chunk_map::{
    CatalogError, ChunkVersion, CollectionRouting, DatabaseEntry, DatabaseVersion, Namespace, Routing,
    ShardId,
};
use document::{Doc, Value, splice};
use smallvec::SmallVec;
use topology::{ConnectionString, ReplicaSet};

use crate::Router;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::local::asked;

/// Attempts of one command whose routing turned out to be stale (`kMaxNumStaleVersionRetries`).
const MAX_STALE_ATTEMPTS: usize = 10;

/// What the routing table says of a collection.
#[derive(Debug, Clone)]
pub enum Route {
    /// In `admin` or `config`, and not sharded: on the config servers, without any version.
    Config,
    /// Not sharded: on the primary shard of its database.
    Unsharded(Arc<DatabaseEntry>),
    /// Sharded.
    Sharded(Arc<CollectionRouting>),
}

/// The versions that one request carries.
#[derive(Debug, Clone, Copy)]
pub enum Versions {
    /// None: config servers, and commands that check nothing.
    None,
    /// Of a sharded collection.
    Sharded(ChunkVersion),
    /// Of a collection that is not sharded.
    Unsharded(Option<DatabaseVersion>),
    /// Of a database alone.
    Database(Option<DatabaseVersion>),
}

/// One shard of an operation.
#[derive(Debug, Clone)]
pub struct Destination {
    /// Who is asked.
    pub shard: ShardId,
    /// What the request carries.
    pub versions: Versions,
}

/// The shards of an operation, by their ids in order.
pub type Destinations = SmallVec<[Destination; 4]>;

impl Versions {
    /// Writes `shardVersion` and `databaseVersion`.
    pub fn write(&self, out: &mut BytesMut) {
        let database = |out: &mut BytesMut, version: Option<DatabaseVersion>| {
            if let Some(version) = version {
                splice::put_element(out, 0x03, "databaseVersion", &version.to_document());
            }
        };
        match self {
            Self::None => {}
            Self::Sharded(version) => splice::put_element(out, 0x03, "shardVersion", &version.to_document()),
            Self::Unsharded(version) => {
                let unsharded = ChunkVersion::UNSHARDED.to_document();
                splice::put_element(out, 0x03, "shardVersion", &unsharded);
                database(out, *version);
            }
            Self::Database(version) => database(out, *version),
        }
    }
}

impl Destination {
    /// The primary shard of a database, for a collection that is not sharded.
    #[must_use]
    pub fn unsharded(database: &DatabaseEntry) -> Self {
        Self { shard: database.primary.clone(), versions: Versions::Unsharded(database.version) }
    }

    /// The primary shard of a database, for a command on the database.
    #[must_use]
    pub fn primary(database: &DatabaseEntry) -> Self {
        Self { shard: database.primary.clone(), versions: Versions::Database(database.version) }
    }

    /// The config servers.
    #[must_use]
    pub fn config() -> Self {
        Self { shard: ShardId::new(ShardId::CONFIG), versions: Versions::None }
    }

    /// A shard of a sharded collection.
    #[must_use]
    pub fn sharded(routing: &CollectionRouting, shard: &ShardId) -> Self {
        Self { shard: shard.clone(), versions: Versions::Sharded(routing.shard_version(shard)) }
    }
}

impl Route {
    /// The shards that a filter concerns.
    pub fn destinations(&self, filter: Doc<'_>, collation: Option<Doc<'_>>) -> CommandResult<Destinations> {
        Ok(match self {
            Self::Config => SmallVec::from_iter([Destination::config()]),
            Self::Unsharded(database) => SmallVec::from_iter([Destination::unsharded(database)]),
            Self::Sharded(routing) => routing
                .target_filter(filter, collation)
                .map_err(shard_key_error)?
                .iter()
                .map(|shard| Destination::sharded(routing, shard))
                .collect(),
        })
    }

    /// All shards that own a part of the collection.
    #[must_use]
    pub fn owners(&self) -> Destinations {
        match self {
            Self::Config => SmallVec::from_iter([Destination::config()]),
            Self::Unsharded(database) => SmallVec::from_iter([Destination::unsharded(database)]),
            Self::Sharded(routing) => {
                let mut owners: Vec<&ShardId> = routing.chunks.owners().map(|(shard, _)| shard).collect();
                owners.sort_unstable();
                owners.into_iter().map(|shard| Destination::sharded(routing, shard)).collect()
            }
        }
    }

    /// Default collation of the collection, if it has one of its own.
    #[must_use]
    pub fn default_collation(&self) -> Option<Doc<'_>> {
        match self {
            Self::Sharded(routing) => routing.default_collation.as_ref().map(document::DocBuf::as_doc),
            Self::Config | Self::Unsharded(_) => None,
        }
    }

    /// The sharded collection's table.
    #[must_use]
    pub const fn sharded(&self) -> Option<&Arc<CollectionRouting>> {
        match self {
            Self::Sharded(routing) => Some(routing),
            Self::Config | Self::Unsharded(_) => None,
        }
    }
}

impl Op<'_> {
    /// Refuses a statement of a transaction on a shard that got chunks after the time that it reads at.
    pub(crate) fn check_arrivals(&self, routing: &CollectionRouting, shard: &ShardId) -> CommandResult<()> {
        self.transaction.as_ref().map_or(Ok(()), |statement| statement.check_arrivals(routing, shard))
    }
}

impl Router {
    /// What is known of a collection, read from the config servers if need be.
    pub async fn route(&self, ns: &Namespace) -> CommandResult<Route> {
        match self.catalog().collection(ns).await {
            Ok(Routing::Sharded(routing)) => {
                asked::routed(routing.chunks.owner_count());
                Ok(Route::Sharded(routing))
            }
            Ok(Routing::Unsharded(database)) if database.primary.is_config() => Ok(Route::Config),
            Ok(Routing::Unsharded(database)) => Ok(Route::Unsharded(database)),
            Err(error) => Err(catalog_error(&error)),
        }
    }

    /// What is known of a collection, and the shards that a filter concerns: none of them has called the snapshot stale.
    /// `None` when the database does not exist.
    pub async fn target(
        &self,
        ns: &Namespace,
        filter: Doc<'_>,
        collation: Option<Doc<'_>>,
    ) -> CommandResult<Option<(Route, Destinations)>> {
        let Some(route) = self.route_if_exists(ns).await? else { return Ok(None) };
        let destinations = route.destinations(filter, collation)?;
        if let Some(routing) = route.sharded()
            && destinations.iter().any(|destination| routing.is_stale_for(&destination.shard))
        {
            self.catalog().collection_refreshed(ns).await.map_err(|error| catalog_error(&error))?;
            let Some(route) = self.route_if_exists(ns).await? else { return Ok(None) };
            let destinations = route.destinations(filter, collation)?;
            return Ok(Some((route, destinations)));
        }
        Ok(Some((route, destinations)))
    }

    /// As [`Self::target`], for a read: at the point in time that it reads at, if it has one.
    pub(crate) async fn target_read(
        &self,
        op: &Op<'_>,
        ns: &Namespace,
        filter: Doc<'_>,
        collation: Option<Doc<'_>>,
    ) -> CommandResult<Option<(Route, Destinations)>> {
        let targeted = self.target(ns, filter, collation).await?;
        let Some((Route::Sharded(routing), destinations)) = &targeted else { return Ok(targeted) };
        let Some(at) = op.routed_at() else {
            for destination in destinations {
                op.check_arrivals(routing, &destination.shard)?;
            }
            return Ok(targeted);
        };
        let ranges = routing.ranges(filter, collation).map_err(shard_key_error)?;
        let shards = routing
            .chunks
            .shards_of_at(&ranges, at)
            .map_err(|error| CommandError::new(ErrorCode::StaleChunkHistory, error.to_string()))?;
        let destinations = shards.iter().map(|shard| Destination::sharded(routing, shard)).collect();
        Ok(Some((Route::Sharded(Arc::clone(routing)), destinations)))
    }

    /// As [`Self::route`]; `None` when the database does not exist, for which most reads have an empty answer.
    pub async fn route_if_exists(&self, ns: &Namespace) -> CommandResult<Option<Route>> {
        match self.route(ns).await {
            Err(error) if error.code() == ErrorCode::NamespaceNotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// A database, read from the config servers if need be.
    pub async fn database(&self, name: &str) -> CommandResult<Arc<DatabaseEntry>> {
        self.catalog().database(name).await.map_err(|error| catalog_error(&error))
    }

    /// The replica set of a shard; the list of shards is read again when it is unknown.
    pub async fn shard_set(&self, shard: &ShardId) -> CommandResult<Arc<ReplicaSet>> {
        if shard.is_config() {
            return Ok(Arc::clone(self.servers().config_set()));
        }
        if let Some(time) = self.clock().topology_time() {
            self.registry().topology_time_seen(time);
        }
        let entry = self.registry().shard(shard).await.map_err(|error| {
            if matches!(error, CatalogError::ShardNotFound(_)) {
                // What still names it is out of date.
                self.catalog().forget_shard(shard);
            }
            catalog_error(&error)
        })?;
        if let Some(set) = self.servers().topology().get(&entry.set_name) {
            return Ok(set);
        }
        let bad =
            |error: topology::TopologyError| CommandError::new(ErrorCode(error.code()), error.to_string());
        let hosts = ConnectionString::parse(&entry.host).map_err(bad)?;
        self.servers().topology().add(&hosts).map_err(bad)
    }

    /// Marks what a stale answer names: it is read anew before its next use.
    pub fn note_stale(&self, error: &CommandError) {
        self.note_stale_again(error, false);
    }

    /// As that; `again`: a command that was told and routed again was told the same. Not everybody who routes asks whether
    /// its shard called the snapshot stale, so everybody waits for a fresh one now.
    fn note_stale_again(&self, error: &CommandError, again: bool) {
        let extra = error.extra();
        match error.code() {
            ErrorCode::StaleConfig
            | ErrorCode::StaleShardVersion
            | ErrorCode::ShardCannotRefreshDueToLocksHeld => {
                let Some(ns) = extra.get_str("ns").and_then(Namespace::parse) else { return };
                let wanted = extra.get("vWanted").and_then(ChunkVersion::parse);
                let shard = extra.get_str("shardId").filter(|_| !again).map(ShardId::new);
                self.catalog().collection_stale(&ns, wanted, shard.as_ref());
            }
            ErrorCode::StaleEpoch => {
                if let Some(ns) = extra.get_str("ns").and_then(Namespace::parse) {
                    self.catalog().collection_stale(&ns, None, None);
                }
            }
            ErrorCode::StaleDbVersion => {
                let Some(db) = extra.get_str("db") else { return };
                let wanted = extra.get("vWanted").and_then(Value::as_doc).and_then(DatabaseVersion::parse);
                self.catalog().database_stale(db, wanted);
            }
            ErrorCode::ShardNotFound => self.registry().invalidate(),
            _ => {}
        }
    }
}

/// Counts the stale answers of one command: after each the routing is refreshed and the command targeted again.
#[derive(Debug)]
pub struct StaleRetries<'r> {
    router: &'r Router,
    /// A read whose snapshot the router chose may choose another one.
    read: Option<&'r Op<'r>>,
    left: usize,
}

impl<'r> StaleRetries<'r> {
    /// Ten attempts.
    #[must_use]
    pub const fn new(router: &'r Router) -> Self {
        Self { router, read: None, left: MAX_STALE_ATTEMPTS }
    }

    /// Ten attempts of a read, snapshots that are gone among them.
    #[must_use]
    pub const fn of_read(op: &'r Op<'r>) -> Self {
        Self { router: op.router, read: Some(op), left: MAX_STALE_ATTEMPTS }
    }

    /// Is the error a stale answer that allows another attempt? Marks what it names either way.
    pub fn again(&mut self, error: &CommandError) -> bool {
        let snapshot_is_gone = error.code().is_snapshot() && self.read.is_some_and(Op::choose_snapshot_again);
        if !error.code().is_stale() && !snapshot_is_gone {
            return false;
        }
        self.router.note_stale_again(error, self.left < MAX_STALE_ATTEMPTS);
        if error.is_settled() {
            return false;
        }
        self.left = self.left.saturating_sub(1);
        tracing::debug!(%error, left = self.left, "routing is stale");
        self.left > 0
    }
}

/// A routing table's failure as a client sees it.
pub(crate) fn catalog_error(error: &CatalogError) -> CommandError {
    CommandError::new(ErrorCode(error.code()), error.to_string())
}

/// A targeting failure as a client sees it.
pub(crate) fn shard_key_error(error: shard_key::ShardKeyError) -> CommandError {
    CommandError::new(ErrorCode(error.code()), error.to_string())
}
