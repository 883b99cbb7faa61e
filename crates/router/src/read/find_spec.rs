//! What of a find a router must understand: the rest is the shards' matter.

use bytes::BytesMut;
use document::splice::{self, Keep};
use document::{Doc, Value};

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{CursorKind, Order};
use crate::error::{CommandError, CommandResult};
use crate::request::is_generic;

/// Documents in a first batch when the client names no number.
pub(crate) const DEFAULT_FIRST_BATCH: u64 = 101;

/// The parts of a find that decide targeting and merging.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FindSpec<'a> {
    pub(crate) filter: Doc<'a>,
    pub(crate) sort: Option<Doc<'a>>,
    pub(crate) projection: Option<Doc<'a>>,
    pub(crate) collation: Option<Doc<'a>>,
    pub(crate) skip: u64,
    /// `None`: no limit.
    pub(crate) limit: Option<u64>,
    pub(crate) batch_size: Option<u64>,
    pub(crate) single_batch: bool,
    pub(crate) show_record_id: bool,
    pub(crate) allow_partial_results: bool,
    pub(crate) no_cursor_timeout: bool,
    pub(crate) kind: CursorKind,
}

impl<'a> FindSpec<'a> {
    /// Reads the command; the refusals are those of mongos 6.0.
    pub(crate) fn parse(body: Doc<'a>) -> CommandResult<Self> {
        let mut spec = Self {
            filter: Doc::empty(),
            sort: None,
            projection: None,
            collation: None,
            skip: 0,
            limit: None,
            batch_size: None,
            single_batch: false,
            show_record_id: false,
            allow_partial_results: false,
            no_cursor_timeout: false,
            kind: CursorKind::Normal,
        };
        let (mut tailable, mut await_data) = (false, false);
        let (mut hint, mut resumes, mut asks_token) = (None, false, false);
        for field in body.iter().skip(1) {
            let (name, value) = (field.name(), field.value());
            match field.name_bytes() {
                b"filter" => spec.filter = object(name, value)?,
                b"sort" => spec.sort = Some(object(name, value)?).filter(|sort| !sort.is_empty()),
                b"projection" => {
                    spec.projection = Some(object(name, value)?).filter(|projection| !projection.is_empty());
                }
                b"collation" => {
                    spec.collation = Some(object(name, value)?).filter(|collation| !collation.is_empty());
                }
                b"min" | b"max" => {
                    object(name, value)?;
                }
                b"hint" => match value {
                    Value::Document(_) | Value::String(_) => hint = Some(value),
                    _ => return Err(CommandError::failed_to_parse("Hint must be a string or an object")),
                },
                b"skip" => spec.skip = count(&path(name), value)?.unwrap_or(0),
                b"limit" => spec.limit = count(&path(name), value)?.filter(|limit| *limit != 0),
                b"batchSize" => spec.batch_size = count(&path(name), value)?,
                b"singleBatch" => spec.single_batch = flag(name, value)?,
                b"showRecordId" => spec.show_record_id = flag(name, value)?,
                b"allowPartialResults" => spec.allow_partial_results = flag(name, value)?,
                b"noCursorTimeout" => spec.no_cursor_timeout = flag(name, value)?,
                b"tailable" => tailable = flag(name, value)?,
                b"awaitData" => await_data = flag(name, value)?,
                b"returnKey" | b"allowDiskUse" | b"readOnce" | b"allowSpeculativeMajorityRead" => {
                    flag(name, value)?;
                }
                b"let" => {
                    if let Value::Document(variables) = value {
                        super::arguments::check_variables(variables)?;
                    }
                }
                b"$_requestResumeToken" => asks_token = flag(name, value)?,
                b"$_resumeAfter" => resumes = !object(name, value)?.is_empty(),
                b"runtimeConstants" if value != Value::Null => {
                    return Err(CommandError::new(
                        ErrorCode(51202),
                        "Cannot specify runtime constants option to a mongos",
                    ));
                }
                b"ntoreturn" if count(&path(name), value)?.is_some() => {
                    return Err(CommandError::new(
                        ErrorCode(5_746_101),
                        "Cannot specify ntoreturn in a find command against mongos",
                    ));
                }
                // A shard that is told of a higher term steps down, and one that is told of the highest dies: both seen on
                // 6.0.5, where mongos passes it on.
                b"term" => {
                    return Err(CommandError::failed_to_parse(
                        "The field 'term' is internal and not allowed in a client's query",
                    ));
                }
                _ => {}
            }
        }
        if asks_token {
            return Err(CommandError::bad_value(
                "Queries on mongoS may not request or provide a resume token",
            ));
        }
        if resumes {
            return Err(CommandError::bad_value(
                "'requestResumeToken' must be true if 'resumeAfter' is specified",
            ));
        }
        if await_data && !tailable {
            return Err(CommandError::failed_to_parse(
                "Cannot set 'awaitData' without also setting 'tailable'",
            ));
        }
        spec.check_together(tailable, hint)?;
        if tailable {
            spec.kind = if await_data { CursorKind::TailableAwaitData } else { CursorKind::Tailable };
        }
        Ok(spec)
    }

    /// Options that do not go together (seen on 6.0.5).
    fn check_together(&self, tailable: bool, hint: Option<Value<'_>>) -> CommandResult<()> {
        let refuse = |text: &str| Err(CommandError::bad_value(text));
        let forbidden = self.projection.filter(|projection| projection.contains("$sortKey"));
        if let Some(projection) = forbidden {
            let shown = crate::admin::shell(projection);
            return Err(CommandError::bad_value(format!(
                "Projection contains illegal field '$sortKey': {shown}"
            )));
        }
        let natural = self.sort.and_then(|sort| sort.get("$natural"));
        if tailable {
            if self.single_batch {
                return refuse("cannot use tailable option with the 'singleBatch' option");
            }
            if self.sort.is_some_and(|sort| sort.iter().count() != 1)
                || self.sort.is_some() && natural.and_then(Value::as_i64) != Some(1)
            {
                return refuse("cannot use tailable option with a sort other than {$natural: 1}");
            }
        }
        let Some(natural) = natural else { return Ok(()) };
        if self.filter.contains("$text") {
            return refuse("text expression not allowed with $natural sort order");
        }
        match hint {
            Some(Value::Document(hint)) if hint.is_empty() => Ok(()),
            Some(Value::Document(hint)) => match hint.get("$natural") {
                Some(direction) if hint.iter().count() == 1 => {
                    if direction.as_i64() == natural.as_i64() {
                        Ok(())
                    } else {
                        refuse("$natural hint must be in the same direction as $natural sort order")
                    }
                }
                Some(_) => Err(CommandError::bad_value(format!(
                    "Cannot include '$natural' in compound hint: {}",
                    crate::admin::shell(hint)
                ))),
                None => refuse("index hint not allowed with $natural sort order"),
            },
            Some(_) => refuse("index hint not allowed with $natural sort order"),
            None => match self.sort {
                Some(sort) if sort.iter().count() > 1 => Err(CommandError::bad_value(format!(
                    "Cannot include '$natural' in compound sort: {}",
                    crate::admin::shell(sort)
                ))),
                _ => Ok(()),
            },
        }
    }

    /// Refuses top-level operators that the query language does not have.
    pub(crate) fn check_operators(&self) -> CommandResult<()> {
        const KNOWN: &[&str] = &[
            "$and",
            "$or",
            "$nor",
            "$expr",
            "$jsonSchema",
            "$comment",
            "$text",
            "$where",
            "$alwaysTrue",
            "$alwaysFalse",
            "$sampleRate",
            "$atomic",
            "$isolated",
        ];
        match self.filter.iter().find(|field| field.name().starts_with('$') && !KNOWN.contains(&field.name()))
        {
            None => Ok(()),
            Some(field) => Err(CommandError::bad_value(format!(
                "unknown top level operator: {}. If you have a field name that starts with a '$' symbol, consider \
                 using $getField or $setField.",
                field.name()
            ))),
        }
    }

    /// How many documents each of several shards may be asked for.
    pub(crate) fn shard_limit(&self) -> CommandResult<Option<i64>> {
        let Some(limit) = self.limit else { return Ok(None) };
        let sum = limit.checked_add(self.skip).and_then(|sum| i64::try_from(sum).ok());
        sum.map(Some).ok_or_else(|| {
            CommandError::new(
                ErrorCode::Overflow,
                format!(
                    "sum of limit and skip cannot be represented as a 64-bit integer, limit: {limit}, skip: {}",
                    self.skip
                ),
            )
        })
    }

    /// The order in which several shards' documents are merged.
    pub(crate) fn order(&self) -> Order {
        match self.sort {
            Some(sort) if is_natural(sort) => Order::Any,
            Some(sort) => Order::by(sort),
            None if mentions_near(self.filter, 0) => Order::SortedWhole,
            None => Order::Any,
        }
    }

    /// Writes the command for one of several shards (see the table in the reads reference: skip stays here, the limit
    /// covers it, the sort key comes along).
    pub(crate) fn write_for_many(&self, op: &Op<'_>, order: &Order, out: &mut BytesMut) -> CommandResult<()> {
        let adds_projection = *order != Order::Any || self.show_record_id;
        splice::copy_fields(op.request.body, out, |name| match name {
            b"skip" | b"limit" | b"singleBatch" => Keep::No,
            b"projection" if adds_projection => Keep::No,
            b"showRecordId" if self.show_record_id => Keep::No,
            _ if is_generic(name) => Keep::No,
            _ => Keep::Yes,
        });
        if let Some(limit) = self.shard_limit()? {
            splice::put_i64(out, "limit", limit);
        }
        if adds_projection {
            let projection = splice::open_doc(out, "projection");
            out.extend_from_slice(self.projection.map_or(&[][..], Doc::elements));
            let meta = |out: &mut BytesMut, name: &str, what: &str| {
                let open = splice::open_doc(out, name);
                splice::put_str(out, "$meta", what);
                open.finish(out);
            };
            match order {
                Order::Any => {}
                Order::Sorted { .. } => meta(out, "$sortKey", "sortKey"),
                Order::SortedWhole => meta(out, "$sortKey", "geoNearDistance"),
            }
            if self.show_record_id {
                meta(out, "$recordId", "recordId");
            }
            projection.finish(out);
        }
        Ok(())
    }
}

/// A sort by the order on disk, which has no key to merge by. Beside other fields it is an error that the shards tell.
fn is_natural(sort: Doc<'_>) -> bool {
    let mut fields = sort.iter();
    fields.next().is_some_and(|field| field.name() == "$natural") && fields.next().is_none()
}

/// Does the filter order by distance? Looks through `$and` as deep as a query may nest.
fn mentions_near(filter: Doc<'_>, depth: usize) -> bool {
    if depth > 100 {
        return false;
    }
    filter.iter().any(|field| match field.value() {
        Value::Document(operators) => {
            operators.iter().any(|operator| matches!(operator.name(), "$near" | "$nearSphere" | "$geoNear"))
        }
        Value::Array(branches) if field.name() == "$and" => branches
            .iter()
            .any(|branch| branch.value().as_doc().is_some_and(|doc| mentions_near(doc, depth + 1))),
        _ => false,
    })
}

fn path(name: &str) -> String {
    format!("FindCommandRequest.{name}")
}

fn object<'a>(name: &str, value: Value<'a>) -> CommandResult<Doc<'a>> {
    value.as_doc().ok_or_else(|| {
        // Without the space, as the server says it (6.0.5).
        let text = format!("Expected field {name}to be of type object");
        CommandError::new(ErrorCode::TypeMismatch, text)
    })
}

/// A non-negative integral number. Null counts as absent.
///
/// `path` is that of errors about the type.
pub(crate) fn count(path: &str, value: Value<'_>) -> CommandResult<Option<u64>> {
    if value == Value::Null {
        return Ok(None);
    }
    let number = value.to_i64_saturating().ok_or_else(|| {
        CommandError::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{path}' is the wrong type '{}', expected types '[long, int, decimal, double']",
                value.element_type().name()
            ),
        )
    })?;
    let name = path.rsplit('.').next().unwrap_or(path);
    u64::try_from(number).map(Some).map_err(|_| {
        CommandError::new(
            ErrorCode(51024),
            format!("BSON field '{name}' value must be >= 0, actual value '{number}'"),
        )
    })
}

pub(crate) fn flag(name: &str, value: Value<'_>) -> CommandResult<bool> {
    value.as_bool().ok_or_else(|| {
        CommandError::new(
            ErrorCode::TypeMismatch,
            format!("Field '{name}' should be a boolean value, but found: {}", value.element_type().name()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &bson::RawDocumentBuf) -> CommandResult<()> {
        FindSpec::parse(Doc::new(body.as_bytes()).unwrap()).map(|_| ())
    }

    #[test]
    fn bad_numbers_and_internal_fields_get_the_servers_codes() {
        for (body, code) in [
            (bson::rawdoc! { "find": "c", "limit": -1 }, 51024),
            (bson::rawdoc! { "find": "c", "batchSize": -5_i64 }, 51024),
            (bson::rawdoc! { "find": "c", "filter": 1 }, 14),
            (bson::rawdoc! { "find": "c", "limit": "x" }, 14),
            (bson::rawdoc! { "find": "c", "awaitData": true }, 9),
            (bson::rawdoc! { "find": "c", "runtimeConstants": {} }, 51202),
            (bson::rawdoc! { "find": "c", "$_resumeAfter": { "x": 1 } }, 2),
            (bson::rawdoc! { "find": "c", "$_requestResumeToken": true }, 2),
            (bson::rawdoc! { "find": "c", "term": i64::MAX }, 9),
            (bson::rawdoc! { "find": "c", "let": { "NOW": 1 } }, 4_738_901),
            (bson::rawdoc! { "find": "c", "projection": { "$sortKey": 1 } }, 2),
            (bson::rawdoc! { "find": "c", "sort": { "$natural": 1 }, "hint": "i" }, 2),
            (bson::rawdoc! { "find": "c", "singleBatch": 1 }, 14),
        ] {
            assert_eq!(parse(&body).unwrap_err().code().0, code, "{body:?}");
        }
    }

    #[test]
    fn an_unknown_top_level_operator_is_refused() {
        let check = |body: bson::RawDocumentBuf| {
            FindSpec::parse(Doc::new(body.as_bytes()).unwrap()).unwrap().check_operators()
        };
        assert!(check(bson::rawdoc! { "find": "c", "filter": { "a": 1, "$or": [] } }).is_ok());
        let error = check(bson::rawdoc! { "find": "c", "filter": { "$nope": 1 } }).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadValue);
    }

    #[test]
    fn limit_and_skip_that_overflow_are_refused() {
        let body = bson::rawdoc! { "find": "c", "limit": i64::MAX, "skip": 1 };
        let spec = FindSpec::parse(Doc::new(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(spec.shard_limit().unwrap_err().code(), ErrorCode::Overflow);
        let body = bson::rawdoc! { "find": "c", "limit": 10, "skip": 5 };
        let spec = FindSpec::parse(Doc::new(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(spec.shard_limit().unwrap(), Some(15));
    }
}
