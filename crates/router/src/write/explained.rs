//! Where a write would go, for explain: the same targeting as when it is run, but all owning shards instead of all
//! shards where it would be broadcast.

use chunk_map::CollectionRouting;

use super::statement::{Kind, Statements};
use super::target::{self, Aim};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Destinations, Versions};
use crate::request::Request;

/// Checks that an update or delete can be explained: exactly one statement.
pub(crate) fn check_one(request: &Request<'_>) -> CommandResult<()> {
    statements(request).map(|_| ())
}

fn statements<'a>(request: &Request<'a>) -> CommandResult<Statements<'a>> {
    let kind = if request.name == "delete" { Kind::Delete } else { Kind::Update };
    let statements = Statements::parse(kind, request)?;
    if statements.len() == 1 {
        return Ok(statements);
    }
    Err(CommandError::new(ErrorCode::InvalidLength, "explained write batches must be of size 1"))
}

/// The shards of an update or delete with one statement.
pub(crate) fn batch(request: &Request<'_>, routing: &CollectionRouting) -> CommandResult<Destinations> {
    let statements = statements(request)?;
    let Some(statement) = statements.get(0) else { return Ok(Destinations::new()) };
    Ok(match target::target(statement, routing)? {
        Aim::One(target) => one(target),
        Aim::Any(targets) => targets.into_iter().flat_map(one).collect(),
        Aim::Many(shards) => shards.iter().map(|shard| Destination::sharded(routing, shard)).collect(),
    })
}

/// The shard of a findAndModify.
pub(crate) fn find_and_modify(
    request: &Request<'_>,
    routing: &CollectionRouting,
) -> CommandResult<Destinations> {
    let query = request.body.get_doc("query").unwrap_or(document::Doc::empty());
    let collation = request.body.get_doc("collation").filter(|collation| !collation.is_empty());
    target::find_and_modify(query, collation, routing).map(one)
}

fn one(target: chunk_map::Target) -> Destinations {
    Destinations::from_iter([Destination {
        shard: target.shard,
        versions: Versions::Sharded(target.version),
    }])
}
