//! collMod

use chunk_map::Namespace;
use document::splice;

use super::arguments::{self, Kind, optional};
use super::primary::PrimaryCall;
use crate::command::Op;
use crate::error::CommandResult;
use crate::remote::Retry;
use crate::reply::Reply;

const COLL_MOD: &[arguments::Argument] = &[
    optional("index", Kind::Object),
    optional("validator", Kind::Object),
    optional("validationLevel", Kind::Str),
    optional("validationAction", Kind::Str),
    optional("viewOn", Kind::Str),
    optional("pipeline", Kind::Array),
    optional("recordPreImages", Kind::Bool),
    optional("changeStreamPreAndPostImages", Kind::Object),
    optional("expireAfterSeconds", Kind::Any),
    optional("timeseries", Kind::Object),
    optional("cappedSize", Kind::Number),
    optional("cappedMax", Kind::Number),
    optional("collectionUUID", Kind::Uuid),
    optional("dryRun", Kind::Bool),
];

/// Changes options of a collection or view; the primary shard has every shard of it do the same.
pub async fn coll_mod(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    // A shard takes any field (seen on 6.0.5).
    arguments::check(op, COLL_MOD)?;
    crate::read::pipeline::check_view(op.request.body.get("pipeline"))?;
    let answered = PrimaryCall::ddl(ns.db())
        .retry(Retry::Never)
        .forward(op, |out| {
            splice::put_str(out, "_shardsvrCollMod", ns.coll());
            arguments::copy_all(op, out);
        })
        .await;
    op.router.catalog().forget_collection(&ns);
    // The granularity of a time series lives with its buckets.
    let buckets = Namespace::new(ns.db(), &format!("system.buckets.{}", ns.coll()));
    op.router.catalog().forget_collection(&buckets);
    answered
}
