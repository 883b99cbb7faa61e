//! Arguments of administrative commands, checked as the server's IDL parser checks them (texts seen on 6.0.5).

use bytes::BytesMut;
use chunk_map::Namespace;
use document::{ElementType, Field, Value, splice};

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::request::is_generic;

/// What types an argument may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whoever reads it checks it.
    Any,
    /// A string.
    Str,
    /// A boolean and nothing else.
    Bool,
    /// A boolean or a number.
    SafeBool,
    /// A number.
    Number,
    /// A document.
    Object,
    /// An array.
    Array,
    /// A UUID.
    Uuid,
    /// A string or null.
    StrOrNull,
}

/// One argument of a command.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    name: &'static str,
    kind: Kind,
    required: bool,
}

/// An argument that must be there.
pub const fn required(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, required: true }
}

/// An argument that may be left out; null counts as left out.
pub const fn optional(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, required: false }
}

impl Kind {
    fn accepts(self, value: Value<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Str => matches!(value, Value::String(_)),
            Self::Bool => matches!(value, Value::Bool(_)),
            Self::SafeBool => matches!(value, Value::Bool(_)) || value.is_number(),
            Self::Number => value.is_number(),
            Self::Object => matches!(value, Value::Document(_)),
            Self::Array => matches!(value, Value::Array(_)),
            Self::Uuid => matches!(value, Value::Binary { subtype: 4, bytes } if bytes.len() == 16),
            Self::StrOrNull => matches!(value, Value::String(_) | Value::Null),
        }
    }

    const fn expected(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Str | Self::StrOrNull => "type 'string'",
            Self::Bool => "type 'bool'",
            Self::SafeBool => "types '[bool, long, int, decimal, double']",
            Self::Number => "types '[long, int, decimal, double']",
            Self::Object => "type 'object'",
            Self::Array => "type 'array'",
            Self::Uuid => "type 'binData'",
        }
    }
}

/// Refuses an argument that is not one of these, for commands that check the rest as they read it.
pub fn only(op: &Op<'_>, names: &[&str]) -> CommandResult<()> {
    let unknown = |field: &Field<'_>| !names.contains(&field.name()) && !is_generic(field.name_bytes());
    match op.request.body.iter().skip(1).find(unknown) {
        None => Ok(()),
        Some(field) => Err(unknown_argument(op, field)),
    }
}

fn unknown_argument(op: &Op<'_>, field: Field<'_>) -> CommandError {
    CommandError::new(
        ErrorCode(40415),
        format!("BSON field '{}.{}' is an unknown field.", op.command.name, field.name()),
    )
}

/// Checks the command's arguments; one that is not in the list is refused.
pub fn check(op: &Op<'_>, arguments: &[Argument]) -> CommandResult<()> {
    let command = op.command.name;
    for field in op.request.body.iter().skip(1).filter(|field| !is_generic(field.name_bytes())) {
        let Some(argument) = arguments.iter().find(|argument| argument.name == field.name()) else {
            return Err(unknown_argument(op, field));
        };
        argument.check(command, field)?;
    }
    for argument in arguments.iter().filter(|argument| argument.required) {
        if op.request.body.get(argument.name).is_none_or(|value| value == Value::Null) {
            return Err(CommandError::new(
                ErrorCode(40414),
                format!("BSON field '{command}.{}' is missing but a required field", argument.name),
            ));
        }
    }
    Ok(())
}

impl Argument {
    fn check(&self, command: &str, field: Field<'_>) -> CommandResult<()> {
        let absent = matches!(field.element_type(), ElementType::Null | ElementType::Undefined);
        if self.kind.accepts(field.value()) || (absent && !self.required) {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{command}.{}' is the wrong type '{}', expected {}",
                self.name,
                field.element_type().name(),
                self.kind.expected()
            ),
        ))
    }
}

/// Copies these arguments of the client, those that are there and not null.
pub fn copy(op: &Op<'_>, out: &mut BytesMut, names: &[&str]) {
    for field in op.request.body.iter().skip(1) {
        if names.contains(&field.name()) && !matches!(field.value(), Value::Null | Value::Undefined) {
            out.extend_from_slice(field.raw());
        }
    }
}

/// Copies all of the client's own arguments but the command's name.
pub fn copy_all(op: &Op<'_>, out: &mut BytesMut) {
    for field in op.request.body.iter().skip(1).filter(|field| !is_generic(field.name_bytes())) {
        out.extend_from_slice(field.raw());
    }
}

/// Writes an argument of the client under another name, if it is there.
pub fn rename(op: &Op<'_>, out: &mut BytesMut, from: &str, to: &str) {
    if let Some(field) = op.request.body.iter().skip(1).find(|field| field.name() == from) {
        put_as(out, to, field);
    }
}

/// Writes a field's value under another name.
pub fn put_as(out: &mut BytesMut, name: &str, field: Field<'_>) {
    splice::put_element(out, field.element_type() as u8, name, field.value_bytes());
}

/// The full namespace that the command's first field names, for commands that the server's IDL parses.
pub fn namespace(op: &Op<'_>) -> CommandResult<Namespace> {
    let Some(text) = op.request.target.as_str() else {
        return Err(CommandError::wrong_type(
            &format!("{0}.{0}", op.command.name),
            op.request.target,
            "string",
        ));
    };
    parse_namespace(text)
}

/// The full namespace that the command's first field names, for commands that read it by hand.
pub fn plain_namespace(op: &Op<'_>) -> CommandResult<Namespace> {
    let Some(text) = op.request.target.as_str() else {
        return Err(CommandError::bad_value(format!(
            "collection name has invalid type {}",
            op.request.target.element_type().name()
        )));
    };
    parse_namespace(text)
}

/// A full namespace that is valid.
pub fn parse_namespace(text: &str) -> CommandResult<Namespace> {
    let invalid =
        || CommandError::new(ErrorCode::InvalidNamespace, format!("Invalid namespace specified '{text}'"));
    let ns = Namespace::parse(text).ok_or_else(invalid)?;
    let bad = |c: char| matches!(c, '$' | '/' | '\\' | ' ' | '"' | '\0');
    let db_is_fine = !ns.db().is_empty() && ns.db().len() < 64 && !ns.db().contains(bad);
    let collection_is_fine =
        !ns.coll().is_empty() && !ns.coll().starts_with('.') && !ns.coll().contains('\0');
    if db_is_fine && collection_is_fine { Ok(ns) } else { Err(invalid()) }
}

/// The database that the command's first field names.
pub fn database_name<'a>(op: &Op<'a>) -> CommandResult<&'a str> {
    let Some(name) = op.request.target.as_str() else {
        return Err(CommandError::wrong_type(
            &format!("{0}.{0}", op.command.name),
            op.request.target,
            "string",
        ));
    };
    check_database_name(name)?;
    Ok(name)
}

/// May a database have this name?
pub fn check_database_name(name: &str) -> CommandResult<()> {
    let bad = |c: char| matches!(c, '.' | '$' | '/' | '\\' | ' ' | '"' | '\0');
    if name.is_empty() || name.len() >= 64 || name.contains(bad) {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("invalid db name specified: {name}"),
        ));
    }
    Ok(())
}
