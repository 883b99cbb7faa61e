//! One parsed command: its name, its own fields, and the generic arguments that any command may have.
//!
//! The generic arguments are read in one pass and never copied blindly to a shard: what a client may not send
//! (`shardVersion`, `$configTime`, `$client`, ...) is left out, and what a shard needs is written anew by
//! [`crate::remote::envelope`].

use bytes::BytesMut;
use document::{Doc, Field, Value, splice};
use topology::ReadPreference;
use wire::OpMsg;

use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// A command as it came from a client, borrowed from its message.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The whole body.
    pub body: Doc<'a>,
    /// The command's name as the client wrote it.
    pub name: &'a str,
    /// The command's first field, which often holds the collection's name.
    pub target: Value<'a>,
    /// `$db`
    pub db: &'a str,
    /// The arguments that any command may have.
    pub generic: Generic<'a>,
    message: Option<&'a OpMsg>,
}

/// The arguments that any command may have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Generic<'a> {
    /// Logical session: `{id: <UUID>}`
    pub lsid: Option<Doc<'a>>,
    /// Number of a retryable write or transaction.
    pub txn_number: Option<i64>,
    /// Sent with every statement of a transaction (as `false`).
    pub autocommit: Option<bool>,
    /// First statement of a transaction.
    pub start_transaction: bool,
    /// `readConcern`
    pub read_concern: Option<Doc<'a>>,
    /// `writeConcern`
    pub write_concern: Option<Doc<'a>>,
    /// Budget of the whole command in milliseconds; 0 means none and reads as `None`.
    pub max_time_ms: Option<u32>,
    /// `$readPreference`
    pub read_preference: Option<Doc<'a>>,
    /// `comment`, any type.
    pub comment: Option<Field<'a>>,
    /// `$clusterTime`
    pub cluster_time: Option<Doc<'a>>,
    /// `apiVersion`, `apiStrict`, `apiDeprecationErrors`
    pub api: ApiParameters<'a>,
    /// `help: true`
    pub help: bool,
}

/// The stable API's parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApiParameters<'a> {
    /// Only `"1"` exists.
    pub version: Option<&'a str>,
    /// Refuse what is not in the version.
    pub strict: Option<bool>,
    /// Refuse what is deprecated in the version.
    pub deprecation_errors: Option<bool>,
}

/// Is this top-level field an argument that any command may have, or one that a client may not send at all?
/// Either way no handler copies it (the table of generic arguments, mongos 5.0 and 6.0).
#[must_use]
pub fn is_generic(name: &[u8]) -> bool {
    match name {
        b"lsid"
        | b"txnNumber"
        | b"autocommit"
        | b"startTransaction"
        | b"coordinator"
        | b"readConcern"
        | b"writeConcern"
        | b"maxTimeMS"
        | b"maxTimeMSOpOnly"
        | b"comment"
        | b"apiVersion"
        | b"apiStrict"
        | b"apiDeprecationErrors"
        | b"shardVersion"
        | b"databaseVersion"
        | b"clientOperationKey"
        | b"allowImplicitCollectionCreation"
        | b"tracking_info"
        | b"mayBypassWriteBlocking"
        | b"help" => true,
        _ => matches!(
            name,
            b"$db"
                | b"$readPreference"
                | b"$clusterTime"
                | b"$audit"
                | b"$client"
                | b"$configServerState"
                | b"$configTime"
                | b"$topologyTime"
                | b"$oplogQueryData"
                | b"$replData"
                | b"$queryOptions"
        ),
    }
}

/// What a command gets whose collection's name is no text: older commands have another code (seen on 6.0.5).
fn code_of_no_name(command: &str) -> ErrorCode {
    match command {
        "find"
        | "count"
        | "distinct"
        | "collStats"
        | "collstats"
        | "validate"
        | "convertToCapped"
        | "planCacheClear"
        | "planCacheClearFilters"
        | "planCacheListFilters"
        | "planCacheSetFilter" => ErrorCode::InvalidNamespace,
        _ => ErrorCode::BadValue,
    }
}

impl<'a> Request<'a> {
    /// From an OP_MSG, whose bytes were validated.
    pub fn from_msg(message: &'a OpMsg) -> CommandResult<Self> {
        let mut request = Self::parse(message.body(), None)?;
        request.message = Some(message);
        Ok(request)
    }

    /// From the query of a legacy OP_QUERY on `<db>.$cmd`.
    pub fn from_query(body: Doc<'a>, db: &'a str) -> CommandResult<Self> {
        Self::parse(body, Some(db))
    }

    /// Which members may answer.
    pub fn read_preference(&self) -> CommandResult<ReadPreference> {
        self.generic.read_preference.map_or(Ok(ReadPreference::PRIMARY), |doc| {
            ReadPreference::from_doc(doc)
                .map_err(|error| CommandError::new(ErrorCode(error.code()), error.to_string()))
        })
    }

    fn parse(body: Doc<'a>, legacy_db: Option<&'a str>) -> CommandResult<Self> {
        let first =
            body.first().ok_or_else(|| CommandError::failed_to_parse("no command in message body"))?;
        let mut generic = Generic::default();
        let mut db = legacy_db;
        for (index, field) in body.iter().enumerate() {
            let name = field.name_bytes();
            if body.iter().take(index).any(|earlier| earlier.name_bytes() == name) {
                return Err(CommandError::failed_to_parse(format!(
                    "Parsed command object contains duplicate top level key: {}",
                    field.name()
                )));
            }
            if index == 0 {
                continue;
            }
            if name == b"$db" && legacy_db.is_none() {
                db = Some(field.value().as_str().ok_or_else(|| type_error("$db", field, "string"))?);
            } else {
                generic.read(first.name(), field)?;
            }
        }
        let db =
            db.ok_or_else(|| CommandError::new(ErrorCode(40571), "OP_MSG requests require a $db argument"))?;
        generic.api.check()?;
        Ok(Self { body, name: first.name(), target: first.value(), db, generic, message: None })
    }

    /// The items of an array argument (`documents`, `updates`, ...), whether it came in the body or as a sequence of
    /// its own. `None` when it is missing; an element that is no document is an error.
    pub fn items(&self, name: &str) -> CommandResult<Option<Vec<Doc<'a>>>> {
        if let Some(sequence) = self.message.and_then(|message| message.sequence(name)) {
            return Ok(Some(sequence.documents().collect()));
        }
        let Some(value) = self.body.get(name) else { return Ok(None) };
        let Some(array) = value.as_array() else {
            return Err(CommandError::wrong_type(&format!("{}.{name}", self.name), value, "array"));
        };
        let mut items = Vec::new();
        for item in array {
            let Value::Document(doc) = item.value() else {
                return Err(CommandError::wrong_type(
                    &format!("{}.{name}.{}", self.name, item.name()),
                    item.value(),
                    "object",
                ));
            };
            items.push(doc);
        }
        Ok(Some(items))
    }

    /// The collection that the command's first field names.
    pub fn collection(&self) -> CommandResult<&'a str> {
        let Some(name) = self.target.as_str() else {
            let text = format!("collection name has invalid type {}", self.target.element_type().name());
            return Err(CommandError::new(code_of_no_name(self.name), text));
        };
        if name.contains('\0') {
            let text = "namespaces cannot have embedded null characters";
            return Err(CommandError::new(ErrorCode::InvalidNamespace, text));
        }
        if name.starts_with('.') {
            let text = format!("Collection names cannot start with '.': {name}");
            return Err(CommandError::new(ErrorCode::InvalidNamespace, text));
        }
        if name.is_empty() {
            return Err(CommandError::new(
                ErrorCode::InvalidNamespace,
                format!("Invalid namespace specified '{}.{name}'", self.db),
            ));
        }
        Ok(name)
    }

    /// The protocol that the command came in, by its name in logs.
    #[must_use]
    pub const fn protocol(&self) -> &'static str {
        if self.message.is_some() { "op_msg" } else { "op_query" }
    }

    /// Does the client take a stream of answers?
    #[must_use]
    pub fn exhaust_allowed(&self) -> bool {
        self.message.is_some_and(OpMsg::exhaust_allowed)
    }

    /// Is it a statement of a transaction?
    #[must_use]
    pub const fn in_transaction(&self) -> bool {
        self.generic.autocommit.is_some()
    }
}

impl<'a> Generic<'a> {
    fn read(&mut self, command: &str, field: Field<'a>) -> CommandResult<()> {
        let value = field.value();
        if value == Value::Null && null_is_absent(field.name_bytes()) {
            return Ok(());
        }
        match field.name_bytes() {
            b"lsid" => {
                let lsid = doc(field)?;
                check_lsid(lsid)?;
                self.lsid = Some(lsid);
            }
            b"txnNumber" => match value {
                Value::Int64(number) if number >= 0 => self.txn_number = Some(number),
                Value::Int64(number) => {
                    return Err(CommandError::invalid_options(format!(
                        "Transaction number cannot be negative, got {number}"
                    )));
                }
                _ => return Err(type_error("OperationSessionInfo.txnNumber", field, "long")),
            },
            b"autocommit" => {
                self.autocommit = Some(
                    value
                        .as_bool()
                        .ok_or_else(|| type_error("OperationSessionInfo.autocommit", field, "bool"))?,
                );
            }
            b"startTransaction" => {
                self.start_transaction = value
                    .as_bool()
                    .ok_or_else(|| type_error("OperationSessionInfo.startTransaction", field, "bool"))?;
            }
            b"readConcern" => self.read_concern = Some(read_concern(command, field)?),
            b"writeConcern" => self.write_concern = Some(write_concern(command, field)?),
            b"$readPreference" => {
                self.read_preference = Some(value.as_doc().ok_or_else(|| read_preference_type(value))?);
            }
            // Older drivers wrap it.
            b"$queryOptions" if self.read_preference.is_none() => {
                self.read_preference = value.as_doc().and_then(|options| options.get_doc("$readPreference"));
            }
            b"$clusterTime" => self.cluster_time = Some(doc(field)?),
            b"comment" => self.comment = Some(field),
            b"maxTimeMS" => self.max_time_ms = max_time(command, value)?,
            b"$maxTimeMs" => {
                return Err(CommandError::invalid_options(
                    "no such command option $maxTimeMs; use maxTimeMS instead",
                ));
            }
            b"apiVersion" => {
                self.api.version = Some(
                    value
                        .as_str()
                        .ok_or_else(|| type_error("APIParametersFromClient.apiVersion", field, "string"))?,
                );
            }
            b"apiStrict" => {
                self.api.strict = Some(
                    value
                        .as_bool()
                        .ok_or_else(|| type_error("APIParametersFromClient.apiStrict", field, "bool"))?,
                );
            }
            b"apiDeprecationErrors" => {
                self.api.deprecation_errors = Some(value.as_bool().ok_or_else(|| {
                    type_error("APIParametersFromClient.apiDeprecationErrors", field, "bool")
                })?);
            }
            b"help" => self.help = value.is_truthy(),
            _ => {}
        }
        Ok(())
    }
}

impl ApiParameters<'_> {
    /// Writes them as a shard gets them; a getMore must carry those of the command that opened its cursor.
    pub fn write(&self, out: &mut BytesMut) {
        let Some(version) = self.version else { return };
        splice::put_str(out, "apiVersion", version);
        if let Some(strict) = self.strict {
            splice::put_bool(out, "apiStrict", strict);
        }
        if let Some(errors) = self.deprecation_errors {
            splice::put_bool(out, "apiDeprecationErrors", errors);
        }
    }

    /// The server's refusals (seen on 6.0.5).
    fn check(&self) -> CommandResult<()> {
        match self.version {
            None if self.strict.is_some() || self.deprecation_errors.is_some() => Err(CommandError::new(
                ErrorCode(4_886_600),
                "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
            )),
            Some("2") => Err(CommandError::new(ErrorCode::APIVersionError, "Cannot accept API version 2")),
            Some(version) if version != "1" => {
                Err(CommandError::new(ErrorCode::APIVersionError, "API version must be \"1\""))
            }
            _ => Ok(()),
        }
    }
}

fn check_lsid(lsid: Doc<'_>) -> CommandResult<()> {
    for field in lsid {
        match (field.name(), field.value()) {
            ("id", Value::Binary { subtype: 4, bytes }) if bytes.len() == 16 => {}
            ("id", value) => {
                return Err(CommandError::new(
                    ErrorCode::TypeMismatch,
                    format!(
                        "BSON field 'OperationSessionInfo.lsid.id' is the wrong binData type '{}', expected type 'UUID'",
                        value.element_type().name()
                    ),
                ));
            }
            // Only the digest of the (missing) user may be sent: see `session::ANONYMOUS_DIGEST`.
            ("uid", Value::Binary { bytes, .. }) if bytes == crate::session::ANONYMOUS_DIGEST => {}
            ("uid", _) => {
                return Err(CommandError::new(
                    ErrorCode::Unauthorized,
                    "Unauthorized to set user digest in LogicalSessionId",
                ));
            }
            ("txnNumber" | "txnUUID", _) => {
                return Err(CommandError::invalid_options(
                    "Internal sessions are not allowed for external clients",
                ));
            }
            (name, _) => {
                return Err(CommandError::new(
                    ErrorCode(40415),
                    format!("BSON field 'OperationSessionInfo.lsid.{name}' is an unknown field."),
                ));
            }
        }
    }
    if lsid.contains("id") {
        return Ok(());
    }
    Err(CommandError::new(
        ErrorCode(40414),
        "BSON field 'OperationSessionInfo.lsid.id' is missing but a required field",
    ))
}

/// Optional fields of the server's own parser: a null is none (seen on 6.0.5).
fn null_is_absent(name: &[u8]) -> bool {
    matches!(
        name,
        b"txnNumber"
            | b"autocommit"
            | b"startTransaction"
            | b"apiVersion"
            | b"apiStrict"
            | b"apiDeprecationErrors"
    )
}

/// `maxTimeMS`: an integral number from 0 to 2^31-1; 0 is no limit. An aggregate reads it by itself (seen on 6.0.5).
fn max_time(command: &str, value: Value<'_>) -> CommandResult<Option<u32>> {
    let aggregate = command == "aggregate";
    let Some(ms) = value.to_i64_saturating() else {
        return Err(match value {
            _ if aggregate && value != Value::Null => CommandError::new(
                ErrorCode::TypeMismatch,
                format!(
                    "BSON field 'aggregate.maxTimeMS' is the wrong type '{}', expected types '[long, int, decimal, double']",
                    value.element_type().name()
                ),
            ),
            _ => CommandError::bad_value("maxTimeMS must be a number"),
        });
    };
    if ms < 0 && aggregate {
        let text = format!("BSON field 'maxTimeMS' value must be >= 0, actual value '{ms}'");
        return Err(CommandError::new(ErrorCode(51024), text));
    }
    let checked = u32::try_from(ms).ok().filter(|ms| i32::try_from(*ms).is_ok());
    let Some(checked) = checked else {
        return Err(CommandError::bad_value(format!("{ms} value for maxTimeMS is out of range")));
    };
    if matches!(value, Value::Double(n) if n.is_nan() || n.fract() != 0.0) {
        return Err(CommandError::bad_value("maxTimeMS has non-integral value"));
    }
    Ok(Some(checked).filter(|ms| *ms > 0))
}

/// In the words of the parser that comes to it first (seen on 6.0.5).
fn read_concern<'a>(command: &str, field: Field<'a>) -> CommandResult<Doc<'a>> {
    let value = field.value();
    value.as_doc().ok_or_else(|| match command {
        "aggregate" if value != Value::Null => type_error("aggregate.readConcern", field, "object"),
        _ => CommandError::failed_to_parse("readConcern field should be an object"),
    })
}

fn write_concern<'a>(command: &str, field: Field<'a>) -> CommandResult<Doc<'a>> {
    let value = field.value();
    value.as_doc().ok_or_else(|| match command {
        "aggregate" if value != Value::Null => type_error("aggregate.writeConcern", field, "object"),
        "find" | "getMore" | "count" | "distinct" | "explain" => {
            CommandError::invalid_options("Command does not support writeConcern")
        }
        "insert" | "update" | "delete" if value.as_array().is_none() => {
            CommandError::new(ErrorCode(10065), "invalid parameter: expected an object (writeConcern)")
        }
        _ => CommandError::new(
            ErrorCode::TypeMismatch,
            format!(
                "\"writeConcern\" had the wrong type. Expected object, found {}",
                value.element_type().name()
            ),
        ),
    })
}

fn doc(field: Field<'_>) -> CommandResult<Doc<'_>> {
    field.value().as_doc().ok_or_else(|| type_error(field.name(), field, "object"))
}

/// In the words of 6.0.5, which has others for this field.
fn read_preference_type(value: Value<'_>) -> CommandError {
    CommandError::new(
        ErrorCode::TypeMismatch,
        format!(
            "$readPreference has incorrect type: expected object but got {}",
            value.element_type().name()
        ),
    )
}

fn type_error(name: &str, field: Field<'_>, expected: &str) -> CommandError {
    CommandError::wrong_type(name, field.value(), expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &bson::RawDocumentBuf) -> CommandResult<()> {
        Request::from_query(Doc::new(body.as_bytes()).unwrap(), "db").map(|_| ())
    }

    #[test]
    fn generic_arguments_are_checked_as_the_server_checks_them() {
        for (body, code) in [
            (bson::rawdoc! { "ping": 1, "maxTimeMS": "5" }, 2),
            (bson::rawdoc! { "ping": 1, "maxTimeMS": 1.5 }, 2),
            (bson::rawdoc! { "ping": 1, "maxTimeMS": -1 }, 2),
            (bson::rawdoc! { "ping": 1, "maxTimeMS": 1_i64 << 31 }, 2),
            (bson::rawdoc! { "ping": 1, "apiVersion": "2" }, 322),
            (bson::rawdoc! { "ping": 1, "apiVersion": 1 }, 14),
            (bson::rawdoc! { "ping": 1, "apiStrict": true }, 4_886_600),
            (bson::rawdoc! { "ping": 1, "lsid": {} }, 40414),
            (bson::rawdoc! { "ping": 1, "lsid": { "id": 5 } }, 14),
            (bson::rawdoc! { "ping": 1, "txnNumber": 5 }, 14),
            (bson::rawdoc! { "ping": 1, "$maxTimeMs": 5 }, 72),
        ] {
            let error = parse(&body).expect_err(&format!("{body:?}"));
            assert_eq!(error.code().0, code, "{body:?}");
        }
        assert!(parse(&bson::rawdoc! { "ping": 1, "maxTimeMS": 5.0, "apiVersion": "1" }).is_ok());
    }

    #[test]
    fn a_duplicate_top_level_field_is_refused() {
        let mut body = document::DocBuf::new();
        body.append("ping", 1).append("shardVersion", 1).append("shardVersion", 2);
        let error = Request::from_query(body.as_doc(), "db").unwrap_err();
        assert_eq!(error.code(), ErrorCode::FailedToParse);
    }
}
