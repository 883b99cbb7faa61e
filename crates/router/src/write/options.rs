//! What a write command says beside its statements.

use document::{Doc, Field, Value};

use super::statement::Kind;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::request::{Request, is_generic};

/// The command's own options.
#[derive(Debug, Clone)]
pub(super) struct Options<'a> {
    /// Stop at the first error.
    pub(super) ordered: bool,
    /// Skip the collection's validator.
    pub(super) bypass_validation: bool,
    /// Variables of all statements.
    pub(super) let_variables: Option<Doc<'a>>,
    /// The collection that the client thinks it writes to.
    pub(super) collection_uuid: Option<Field<'a>>,
    /// Numbers of the statements of a retryable write.
    pub(super) statement_ids: StatementIds,
}

/// How the statements of a retryable write are numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StatementIds {
    /// One after the other from this one.
    From(i32),
    /// As the client says.
    Each(Vec<i32>),
}

impl StatementIds {
    /// The number of the statement at this place.
    pub(super) fn of(&self, index: u32) -> i32 {
        match self {
            Self::From(first) => first.saturating_add(i32::try_from(index).unwrap_or(i32::MAX)),
            Self::Each(ids) => {
                usize::try_from(index).ok().and_then(|index| ids.get(index)).copied().unwrap_or_default()
            }
        }
    }
}

impl<'a> Options<'a> {
    /// Reads them, and refuses what is no option of the command (texts seen on 6.0.5).
    pub(super) fn parse(kind: Kind, request: &Request<'a>) -> CommandResult<Self> {
        let mut options = Self {
            ordered: true,
            bypass_validation: false,
            let_variables: None,
            collection_uuid: None,
            statement_ids: StatementIds::From(0),
        };
        let (mut stmt_id, mut stmt_ids) = (None, None);
        for field in request.body.iter().skip(1) {
            let (name, value) = (field.name(), field.value());
            if is_generic(name.as_bytes()) || name == kind.items() {
                continue;
            }
            let path = || format!("{}.{name}", kind.command());
            if matches!(value, Value::Null | Value::Undefined) && is_known(kind, name) {
                if name == "stmtIds" && value == Value::Null {
                    return Err(no_list(name));
                }
                continue;
            }
            match name {
                "ordered" => {
                    options.ordered =
                        value.as_bool().ok_or_else(|| CommandError::wrong_type(&path(), value, "bool"))?;
                }
                "bypassDocumentValidation" => options.bypass_validation = safe_bool(&path(), value)?,
                "stmtId" => stmt_id = Some(int(&path(), value)?),
                "stmtIds" => {
                    let ids =
                        value.as_array().ok_or_else(|| CommandError::wrong_type(&path(), value, "array"))?;
                    let each = |id: Field<'_>| int(&format!("{}.{}", path(), id.name()), id.value());
                    stmt_ids = Some(ids.iter().map(each).collect::<CommandResult<Vec<i32>>>()?);
                }
                "collectionUUID" => match value {
                    Value::Binary { subtype: 4, .. } => options.collection_uuid = Some(field),
                    _ => return Err(CommandError::wrong_type(&path(), value, "binData")),
                },
                "let" if kind != Kind::Insert => {
                    options.let_variables = Some(
                        value.as_doc().ok_or_else(|| CommandError::wrong_type(&path(), value, "object"))?,
                    );
                }
                "runtimeConstants" if kind != Kind::Insert => {
                    return Err(CommandError::new(
                        ErrorCode(51195),
                        "Cannot specify runtime constants option to a mongos",
                    ));
                }
                "isTimeseriesNamespace" => {
                    return Err(CommandError::new(
                        ErrorCode(5_916_401),
                        "the 'isTimeseriesNamespace' parameter cannot be used on mongos",
                    ));
                }
                "encryptionInformation" => return Err(CommandError::not_supported("encryptionInformation")),
                _ => return Err(unknown_field(kind.command(), name)),
            }
        }
        if let (Some(one), Some(each)) = (stmt_id, &stmt_ids) {
            return Err(CommandError::invalid_options(format!(
                "May not specify both stmtId and stmtIds in write command. Got {{ stmtId: {one}, stmtIds: {each:?} }}"
            )));
        }
        if let Some(each) = stmt_ids {
            options.statement_ids = StatementIds::Each(each);
        } else if let Some(first) = stmt_id {
            options.statement_ids = StatementIds::From(first);
        }
        Ok(options)
    }

    /// The batch has this many statements: does that fit?
    pub(super) fn check_count(&self, count: usize) -> CommandResult<()> {
        if count == 0 || count > super::split::MAX_STATEMENTS {
            return Err(CommandError::new(
                ErrorCode::InvalidLength,
                format!(
                    "Write batch sizes must be between 1 and {}. Got {count} operations.",
                    super::split::MAX_STATEMENTS
                ),
            ));
        }
        if let StatementIds::Each(ids) = &self.statement_ids
            && ids.len() != count
        {
            return Err(CommandError::new(
                ErrorCode::InvalidLength,
                format!(
                    "Number of statement ids must match the number of batch entries. Got {} statement ids but {count} operations.",
                    ids.len()
                ),
            ));
        }
        Ok(())
    }
}

/// Null counts as absent for what exists, and only for that.
fn is_known(kind: Kind, name: &str) -> bool {
    matches!(
        name,
        "ordered"
            | "bypassDocumentValidation"
            | "stmtId"
            | "stmtIds"
            | "collectionUUID"
            | "isTimeseriesNamespace"
    ) || (kind != Kind::Insert && matches!(name, "let" | "runtimeConstants"))
}

/// `BSON field '<command>.<name>' is an unknown field.`
pub(super) fn unknown_field(path: &str, name: &str) -> CommandError {
    CommandError::new(ErrorCode(40415), format!("BSON field '{path}.{name}' is an unknown field."))
}

/// What servers say of lists that are null, unlike of other fields (seen on 6.0.5).
pub(super) fn no_list(name: &str) -> CommandError {
    CommandError::new(ErrorCode(10065), format!("invalid parameter: expected an object ({name})"))
}

/// `BSON field '<path>' is missing but a required field`
pub(super) fn missing_field(path: &str) -> CommandError {
    CommandError::new(ErrorCode(40414), format!("BSON field '{path}' is missing but a required field"))
}

fn safe_bool(path: &str, value: Value<'_>) -> CommandResult<bool> {
    match value {
        Value::Bool(flag) => Ok(flag),
        number if number.is_number() => Ok(number.is_truthy()),
        other => Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{path}' is the wrong type '{}', expected types '[bool, long, int, decimal, double']",
                other.element_type().name()
            ),
        )),
    }
}

fn int(path: &str, value: Value<'_>) -> CommandResult<i32> {
    match value {
        Value::Int32(n) => Ok(n),
        other => Err(CommandError::wrong_type(path, other, "int")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: Kind, body: &bson::RawDocumentBuf) -> CommandResult<StatementIds> {
        let request = Request::from_query(Doc::new(body.as_bytes()).unwrap(), "db")?;
        let options = Options::parse(kind, &request)?;
        options.check_count(2)?;
        Ok(options.statement_ids)
    }

    #[test]
    fn options_are_refused_with_the_servers_codes() {
        for (kind, body, code) in [
            (Kind::Insert, bson::rawdoc! { "insert": "c", "foo": 1 }, 40415),
            (Kind::Insert, bson::rawdoc! { "insert": "c", "let": {} }, 40415),
            (Kind::Insert, bson::rawdoc! { "insert": "c", "runtimeConstants": {} }, 40415),
            (Kind::Update, bson::rawdoc! { "update": "c", "runtimeConstants": {} }, 51195),
            (Kind::Update, bson::rawdoc! { "update": "c", "let": 1 }, 14),
            (Kind::Insert, bson::rawdoc! { "insert": "c", "ordered": 1 }, 14),
            (Kind::Insert, bson::rawdoc! { "insert": "c", "bypassDocumentValidation": "x" }, 14),
            (Kind::Insert, bson::rawdoc! { "insert": "c", "stmtId": 1, "stmtIds": [1, 2] }, 72),
            (Kind::Insert, bson::rawdoc! { "insert": "c", "stmtIds": [1] }, 16),
            (Kind::Insert, bson::rawdoc! { "insert": "c", "isTimeseriesNamespace": true }, 5_916_401),
        ] {
            assert_eq!(parse(kind, &body).expect_err(&format!("{body:?}")).code().0, code, "{body:?}");
        }
    }

    #[test]
    fn statements_are_numbered_from_the_clients_numbers() {
        let ids = parse(Kind::Insert, &bson::rawdoc! { "insert": "c", "stmtIds": [7, 3], "documents": [] })
            .unwrap();
        assert_eq!((ids.of(0), ids.of(1)), (7, 3));
        let ids =
            parse(Kind::Insert, &bson::rawdoc! { "insert": "c", "stmtId": 5, "ordered": false }).unwrap();
        assert_eq!((ids.of(0), ids.of(1)), (5, 6));
        let ids =
            parse(Kind::Insert, &bson::rawdoc! { "insert": "c", "bypassDocumentValidation": 1 }).unwrap();
        assert_eq!(ids.of(1), 1);
    }
}
