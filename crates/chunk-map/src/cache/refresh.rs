//! One refresh of one collection or database: ask, build on what is known, start over when it does not fit.

use std::sync::Arc;

use super::statistics::Counters;
use crate::error::CatalogError;
use crate::ids::{DatabaseName, Namespace};
use crate::metadata::DatabaseEntry;
use crate::routing::CollectionRouting;
use crate::source::ConfigSource;

/// How often routing information that does not fit together is read again, as in mongos.
const ATTEMPTS: u32 = 3;

/// Reads a database.
pub(super) async fn database<S: ConfigSource>(
    source: Arc<S>,
    name: DatabaseName,
) -> Result<Arc<DatabaseEntry>, CatalogError> {
    match source.database(name.as_str()).await? {
        Some(entry) => Ok(Arc::new(entry)),
        None => Err(CatalogError::DatabaseNotFound(name)),
    }
}

/// Reads a collection, or what is new of it; `None` if it is not sharded.
pub(super) async fn collection<S: ConfigSource>(
    source: Arc<S>,
    counters: Arc<Counters>,
    ns: Namespace,
    last: Option<Arc<CollectionRouting>>,
) -> Result<Option<Arc<CollectionRouting>>, CatalogError> {
    let mut last = last;
    let mut attempt = 1;
    loop {
        let result = once(&*source, &counters, &ns, last.as_deref()).await;
        match result {
            Ok(routing) => return Ok(routing.map(Arc::new)),
            Err(error) => {
                counters.failed.add(1);
                if !error.is_transient() || attempt >= ATTEMPTS {
                    return Err(error);
                }
                if matches!(error, CatalogError::Inconsistent { .. }) {
                    // Perhaps it is what we had that does not fit.
                    last = None;
                }
                attempt += 1;
            }
        }
    }
}

async fn once<S: ConfigSource>(
    source: &S,
    counters: &Counters,
    ns: &Namespace,
    last: Option<&CollectionRouting>,
) -> Result<Option<CollectionRouting>, CatalogError> {
    let (started, active) = match last {
        Some(_) => (&counters.incremental_started, &counters.active_incremental),
        None => (&counters.full_started, &counters.active_full),
    };
    started.add(1);
    let _active = active.active();
    let Some(changes) = source.collection(ns, last.map(CollectionRouting::known)).await? else {
        return Ok(None);
    };
    let routing = match last {
        Some(last) => last.updated(changes),
        None => CollectionRouting::full(changes),
    };
    routing.map(Some).map_err(|source| CatalogError::Inconsistent { ns: ns.clone(), source })
}
