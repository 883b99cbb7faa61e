//! The statements of a batch, as views into the client's bytes.
//!
//! All are checked before the first is sent: a batch that cannot be parsed changes nothing, as on a mongod.

use document::{Doc, Value};

use super::options::{missing_field, no_list, unknown_field};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::request::Request;

/// Which of the three commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Update,
    Delete,
}

impl Kind {
    /// The command's name.
    pub(super) const fn command(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// The name of its array.
    pub(super) const fn items(self) -> &'static str {
        match self {
            Self::Insert => "documents",
            Self::Update => "updates",
            Self::Delete => "deletes",
        }
    }
}

/// What an update does to a document.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'a> {
    /// Operators or a whole document: not looked at before it is targeted.
    Document(Doc<'a>),
    /// A pipeline.
    Pipeline,
}

/// One element of `updates`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Update<'a> {
    pub(super) raw: Doc<'a>,
    pub(super) query: Doc<'a>,
    pub(super) change: Change<'a>,
    pub(super) collation: Option<Doc<'a>>,
    pub(super) multi: bool,
    pub(super) upsert: bool,
}

/// One element of `deletes`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delete<'a> {
    pub(super) raw: Doc<'a>,
    pub(super) query: Doc<'a>,
    pub(super) collation: Option<Doc<'a>>,
    /// `limit: 0`
    pub(super) multi: bool,
}

/// The statements of one command.
#[derive(Debug, Clone)]
pub(super) enum Statements<'a> {
    Insert(Vec<Doc<'a>>),
    Update(Vec<Update<'a>>),
    Delete(Vec<Delete<'a>>),
}

/// One statement of any command.
#[derive(Debug, Clone, Copy)]
pub(super) enum Statement<'s, 'a> {
    Insert(Doc<'a>),
    Update(&'s Update<'a>),
    Delete(&'s Delete<'a>),
}

impl<'a> Statements<'a> {
    /// Reads and checks the statements of a command.
    pub(super) fn parse(kind: Kind, request: &Request<'a>) -> CommandResult<Self> {
        let items = request
            .items(kind.items())?
            .ok_or_else(|| missing_field(&format!("{}.{}", kind.command(), kind.items())))?;
        Ok(match kind {
            Kind::Insert => Self::Insert(items),
            Kind::Update => Self::Update(items.into_iter().map(Update::parse).collect::<CommandResult<_>>()?),
            Kind::Delete => Self::Delete(items.into_iter().map(Delete::parse).collect::<CommandResult<_>>()?),
        })
    }

    /// Which command they are of.
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Insert(_) => Kind::Insert,
            Self::Update(_) => Kind::Update,
            Self::Delete(_) => Kind::Delete,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Insert(items) => items.len(),
            Self::Update(items) => items.len(),
            Self::Delete(items) => items.len(),
        }
    }

    /// The statement at this place.
    pub(super) fn get(&self, index: u32) -> Option<Statement<'_, 'a>> {
        let index = usize::try_from(index).ok()?;
        match self {
            Self::Insert(items) => items.get(index).copied().map(Statement::Insert),
            Self::Update(items) => items.get(index).map(Statement::Update),
            Self::Delete(items) => items.get(index).map(Statement::Delete),
        }
    }

    /// The bytes of the statement at this place.
    pub(super) fn raw(&self, index: u32) -> Doc<'a> {
        match self.get(index) {
            Some(Statement::Insert(doc)) => doc,
            Some(Statement::Update(update)) => update.raw,
            Some(Statement::Delete(delete)) => delete.raw,
            None => Doc::empty(),
        }
    }
}

impl<'a> Update<'a> {
    fn parse(raw: Doc<'a>) -> CommandResult<Self> {
        let (mut query, mut change, mut collation) = (None, None, None);
        let (mut multi, mut upsert) = (false, false);
        for field in raw {
            let (name, value) = (field.name(), field.value());
            let path = || format!("update.updates.{name}");
            match name {
                "q" if value == Value::Null => {}
                "q" => query = Some(object(&path, value)?),
                "u" => change = Some(Change::parse(value)?),
                "hint" => check_hint(value)?,
                "arrayFilters" if value == Value::Null => return Err(no_list(name)),
                "multi" | "upsert" | "collation" | "c" | "arrayFilters" | "upsertSupplied"
                    if is_nothing(value) => {}
                "multi" => multi = boolean(&path, value)?,
                "upsert" => upsert = boolean(&path, value)?,
                "upsertSupplied" => {
                    boolean(&path, value)?;
                }
                "collation" => collation = Some(object(&path, value)?),
                "c" => {
                    object(&path, value)?;
                }
                "arrayFilters" => {
                    let filters =
                        value.as_array().ok_or_else(|| CommandError::wrong_type(&path(), value, "array"))?;
                    for filter in filters {
                        object(&|| format!("{}.{}", path(), filter.name()), filter.value())?;
                    }
                }
                _ => return Err(unknown_field("update.updates", name)),
            }
        }
        Ok(Self {
            raw,
            query: query.ok_or_else(|| missing_field("update.updates.q"))?,
            change: change.ok_or_else(|| missing_field("update.updates.u"))?,
            collation,
            multi,
            upsert,
        })
    }
}

impl<'a> Change<'a> {
    fn parse(value: Value<'a>) -> CommandResult<Self> {
        match value {
            Value::Document(doc) => Ok(Self::Document(doc)),
            Value::Array(pipeline) => crate::read::pipeline::check_update(pipeline).map(|()| Self::Pipeline),
            _ => Err(CommandError::failed_to_parse("Update argument must be either an object or an array")),
        }
    }
}

impl<'a> Delete<'a> {
    fn parse(raw: Doc<'a>) -> CommandResult<Self> {
        let (mut query, mut limit, mut collation) = (None, None, None);
        for field in raw {
            let (name, value) = (field.name(), field.value());
            let path = || format!("delete.deletes.{name}");
            match name {
                "q" if value == Value::Null => {}
                "q" => query = Some(object(&path, value)?),
                "limit" => limit = Some(parse_limit(value)?),
                "hint" => check_hint(value)?,
                "collation" if is_nothing(value) => {}
                "collation" => collation = Some(object(&path, value)?),
                _ => return Err(unknown_field("delete.deletes", name)),
            }
        }
        Ok(Self {
            raw,
            query: query.ok_or_else(|| missing_field("delete.deletes.q"))?,
            collation,
            multi: limit.ok_or_else(|| missing_field("delete.deletes.limit"))?,
        })
    }
}

/// Does `limit` mean all that match? What is no number counts as 0 (seen on 6.0.5).
fn parse_limit(value: Value<'_>) -> CommandResult<bool> {
    if !value.is_number() {
        return Ok(true);
    }
    match value.as_i64() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => {
            let shown = match value {
                Value::Double(n) => n.to_string(),
                other => other.as_i64().map_or_else(|| "a fraction".to_owned(), |n| n.to_string()),
            };
            Err(CommandError::failed_to_parse(format!(
                "The limit field in delete objects must be 0 or 1. Got {shown}"
            )))
        }
    }
}

const fn is_nothing(value: Value<'_>) -> bool {
    matches!(value, Value::Null | Value::Undefined)
}

fn object<'a>(path: &dyn Fn() -> String, value: Value<'a>) -> CommandResult<Doc<'a>> {
    value.as_doc().ok_or_else(|| CommandError::wrong_type(&path(), value, "object"))
}

fn boolean(path: &dyn Fn() -> String, value: Value<'_>) -> CommandResult<bool> {
    value.as_bool().ok_or_else(|| CommandError::wrong_type(&path(), value, "bool"))
}

fn check_hint(value: Value<'_>) -> CommandResult<()> {
    match value {
        Value::Document(_) | Value::String(_) => Ok(()),
        _ => Err(CommandError::new(ErrorCode::FailedToParse, "Hint must be a string or an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(item: &bson::RawDocumentBuf) -> Result<(bool, bool), i32> {
        Update::parse(Doc::new(item.as_bytes()).unwrap())
            .map(|update| (update.multi, update.upsert))
            .map_err(|error| error.code().0)
    }

    fn delete(item: &bson::RawDocumentBuf) -> Result<bool, i32> {
        Delete::parse(Doc::new(item.as_bytes()).unwrap())
            .map(|delete| delete.multi)
            .map_err(|error| error.code().0)
    }

    #[test]
    fn updates_are_checked_as_the_server_checks_them() {
        for (item, code) in [
            (bson::rawdoc! { "q": {} }, 40414),
            (bson::rawdoc! { "u": {} }, 40414),
            (bson::rawdoc! { "q": {}, "u": {}, "foo": 1 }, 40415),
            (bson::rawdoc! { "q": {}, "u": 5 }, 9),
            (bson::rawdoc! { "q": 5, "u": {} }, 14),
            (bson::rawdoc! { "q": {}, "u": {}, "multi": 1 }, 14),
            (bson::rawdoc! { "q": {}, "u": {}, "upsert": "x" }, 14),
            (bson::rawdoc! { "q": {}, "u": {}, "collation": 5 }, 14),
            (bson::rawdoc! { "q": {}, "u": {}, "arrayFilters": [5] }, 14),
            (bson::rawdoc! { "q": {}, "u": {}, "arrayFilters": null }, 10065),
            (bson::rawdoc! { "q": null, "u": {} }, 40414),
            (bson::rawdoc! { "q": {}, "u": {}, "hint": 5 }, 9),
            (bson::rawdoc! { "q": {}, "u": {}, "sampleId": 1 }, 40415),
            (bson::rawdoc! { "q": {}, "u": [5] }, 14),
            (bson::rawdoc! { "q": {}, "u": [{ "$set": { "a": 1 } }, {}] }, 40323),
            (bson::rawdoc! { "q": {}, "u": [{ "$set": { "a": 1 }, "$unset": "b" }] }, 40323),
            (bson::rawdoc! { "q": {}, "u": [{ "$set": { "a": 1 } }, { "$nope": 1 }] }, 40324),
        ] {
            assert_eq!(update(&item), Err(code), "{item:?}");
        }
        assert_eq!(
            update(&bson::rawdoc! { "q": {}, "u": [], "multi": true, "collation": null }),
            Ok((true, false))
        );
        // A stage that may not stand in an update fails its statement alone: the shard says so.
        assert_eq!(update(&bson::rawdoc! { "q": {}, "u": [{ "$match": {} }] }), Ok((false, false)));
        assert_eq!(
            update(&bson::rawdoc! { "q": {}, "u": {}, "upsert": true, "hint": "x" }),
            Ok((false, true))
        );
    }

    #[test]
    fn a_limit_is_zero_or_one() {
        for (item, result) in [
            (bson::rawdoc! { "q": {}, "limit": 0 }, Ok(true)),
            (bson::rawdoc! { "q": {}, "limit": 1.0 }, Ok(false)),
            (bson::rawdoc! { "q": {}, "limit": "x" }, Ok(true)),
            (bson::rawdoc! { "q": {}, "limit": 2 }, Err(9)),
            (bson::rawdoc! { "q": {}, "limit": 1.5 }, Err(9)),
            (bson::rawdoc! { "q": {} }, Err(40414)),
            (bson::rawdoc! { "limit": 1 }, Err(40414)),
            (bson::rawdoc! { "q": {}, "limit": 1, "foo": 1 }, Err(40415)),
        ] {
            assert_eq!(delete(&item), result, "{item:?}");
        }
    }
}
