//! Views: a document is a slice, a field is three slices, nothing is decoded until asked for.

use crate::error::DocumentError;
use crate::value::{ElementType, Timestamp, Value};

/// A document (or array) as a view over its bytes, length prefix and terminator included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Doc<'a> {
    bytes: &'a [u8],
}

/// The document without fields.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

impl<'a> Doc<'a> {
    /// `{}`
    #[must_use]
    pub const fn empty() -> Doc<'static> {
        Doc { bytes: EMPTY }
    }

    /// A view over exactly these bytes. Checks the length prefix and the last byte; the fields are checked one by
    /// one when they are read, and reading ends at the first that is malformed.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DocumentError> {
        let announced = prefix(bytes).map_or(-1, i64::from);
        if announced < 5 || usize::try_from(announced).ok() != Some(bytes.len()) {
            return Err(DocumentError::Length { announced, available: bytes.len() });
        }
        if bytes.last() != Some(&0) {
            return Err(DocumentError::Terminator);
        }
        Ok(Self { bytes })
    }

    /// A view over the document that `bytes` starts with; what follows it is left alone.
    pub fn prefix_of(bytes: &'a [u8]) -> Result<Self, DocumentError> {
        let announced = prefix(bytes).unwrap_or(-1);
        let length = DocumentError::Length { announced: i64::from(announced), available: bytes.len() };
        let end = usize::try_from(announced).map_err(|_| length)?;
        Self::new(bytes.get(..end).ok_or(length)?)
    }

    /// A view over exactly these bytes, every field of every level checked, at most [`crate::MAX_DEPTH`] levels.
    pub fn validate(bytes: &'a [u8]) -> Result<Self, DocumentError> {
        let doc = Self::new(bytes)?;
        crate::validate::validate(bytes)?;
        Ok(doc)
    }

    /// The whole document: length, elements, terminator.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The elements, without length prefix and terminator: what a splice copies.
    #[must_use]
    pub fn elements(self) -> &'a [u8] {
        self.bytes.get(4..self.bytes.len() - 1).unwrap_or_default()
    }

    /// Has it no field?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bytes.len() <= 5
    }

    /// Its fields in order.
    #[must_use]
    pub fn iter(self) -> Fields<'a> {
        Fields { rest: self.elements(), malformed: false }
    }

    /// Its first field, which names a command.
    #[must_use]
    pub fn first(self) -> Option<Field<'a>> {
        self.iter().next()
    }

    /// The first field of this name.
    #[must_use]
    pub fn field(self, name: &str) -> Option<Field<'a>> {
        self.iter().find(|field| field.name == name.as_bytes())
    }

    /// The value of the first field of this name.
    #[must_use]
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.field(name).map(Field::value)
    }

    /// The string of this name, if it is one.
    #[must_use]
    pub fn get_str(self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::as_str)
    }

    /// The sub-document of this name, if it is one.
    #[must_use]
    pub fn get_doc(self, name: &str) -> Option<Doc<'a>> {
        self.get(name).and_then(Value::as_doc)
    }

    /// The array of this name, if it is one.
    #[must_use]
    pub fn get_array(self, name: &str) -> Option<Doc<'a>> {
        self.get(name).and_then(Value::as_array)
    }

    /// The integral number of this name, if it is one.
    #[must_use]
    pub fn get_i64(self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    /// Is there a field of this name?
    #[must_use]
    pub fn contains(self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// Where `part`, a slice of this document, starts in it. `None` if it is no part of it.
    #[must_use]
    pub fn offset_of(self, part: &[u8]) -> Option<usize> {
        let offset = (part.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        (offset + part.len() <= self.bytes.len()).then_some(offset)
    }
}

impl<'a> IntoIterator for Doc<'a> {
    type Item = Field<'a>;
    type IntoIter = Fields<'a>;

    fn into_iter(self) -> Fields<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for Doc<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut map = f.debug_map();
        for field in self.iter() {
            map.entry(&field.name(), &field.value());
        }
        map.finish()
    }
}

/// One element of a document: type, name, value, and its bytes.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    kind: ElementType,
    name: &'a [u8],
    value: &'a [u8],
    raw: &'a [u8],
}

impl<'a> Field<'a> {
    /// Its name; a name that is no UTF-8 reads as U+FFFD, which equals no name that matters.
    #[must_use]
    pub fn name(self) -> &'a str {
        std::str::from_utf8(self.name).unwrap_or("\u{FFFD}")
    }

    /// The bytes of its name.
    #[must_use]
    pub const fn name_bytes(self) -> &'a [u8] {
        self.name
    }

    /// Its type.
    #[must_use]
    pub const fn element_type(self) -> ElementType {
        self.kind
    }

    /// The whole element: type byte, name, value.
    #[must_use]
    pub const fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// The bytes of the value alone.
    #[must_use]
    pub const fn value_bytes(self) -> &'a [u8] {
        self.value
    }

    /// Its value.
    #[must_use]
    pub fn value(self) -> Value<'a> {
        // The sizes were checked when the element was cut: a fallback here can only be seen by a bug.
        decode(self.kind, self.value).unwrap_or(Value::Undefined)
    }
}

impl std::fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.name(), self.value())
    }
}

/// Iterator over the fields of a document. Ends at the first malformed one; [`Fields::is_malformed`] then says so.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
    malformed: bool,
}

impl<'a> Fields<'a> {
    /// Did the iteration end at something that is no field?
    #[must_use]
    pub const fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// The elements that were not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Iterates over bare elements (no length prefix, no terminator).
    #[must_use]
    pub const fn over_elements(elements: &'a [u8]) -> Self {
        Self { rest: elements, malformed: false }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        if let Some((field, rest)) = cut(self.rest) {
            self.rest = rest;
            Some(field)
        } else {
            self.malformed = true;
            self.rest = &[];
            None
        }
    }
}

/// The little-endian int32 that `bytes` starts with.
pub(crate) fn prefix(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk::<4>().map(|chunk| i32::from_le_bytes(*chunk))
}

/// Cuts the first element off. `None` when it does not fit.
fn cut(bytes: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (&code, rest) = bytes.split_first()?;
    let kind = ElementType::from_byte(code)?;
    let name_length = rest.iter().position(|&byte| byte == 0)?;
    let (name, after_name) = (rest.get(..name_length)?, rest.get(name_length + 1..)?);
    let size = value_size(kind, after_name)?;
    let (value, rest) = after_name.split_at_checked(size)?;
    let raw = bytes.get(..1 + name_length + 1 + size)?;
    Some((Field { kind, name, value, raw }, rest))
}

/// How many bytes the value of this type takes at the start of `bytes`; at most what is there.
pub(crate) fn value_size(kind: ElementType, bytes: &[u8]) -> Option<usize> {
    let size = match kind {
        ElementType::Undefined | ElementType::Null | ElementType::MinKey | ElementType::MaxKey => 0,
        ElementType::Bool => 1,
        ElementType::Int32 => 4,
        ElementType::Double | ElementType::DateTime | ElementType::Timestamp | ElementType::Int64 => 8,
        ElementType::ObjectId => 12,
        ElementType::Decimal128 => 16,
        ElementType::String | ElementType::JavaScript | ElementType::Symbol => string_size(bytes)?,
        ElementType::DbPointer => string_size(bytes)?.checked_add(12)?,
        ElementType::Document | ElementType::Array => sized(bytes, 5)?,
        ElementType::JavaScriptWithScope => sized(bytes, 14)?,
        ElementType::Binary => usize::try_from(prefix(bytes)?).ok()?.checked_add(5)?,
        ElementType::Regex => {
            let pattern = bytes.iter().position(|&byte| byte == 0)? + 1;
            pattern + bytes.get(pattern..)?.iter().position(|&byte| byte == 0)? + 1
        }
    };
    (size <= bytes.len()).then_some(size)
}

fn string_size(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(prefix(bytes)?).ok()?;
    let size = length.checked_add(4)?;
    (length >= 1 && bytes.get(size - 1) == Some(&0)).then_some(size)
}

fn sized(bytes: &[u8], minimum: usize) -> Option<usize> {
    let size = usize::try_from(prefix(bytes)?).ok()?;
    (size >= minimum && bytes.get(size - 1) == Some(&0)).then_some(size)
}

fn text(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(4..bytes.len().checked_sub(1)?)
}

pub(crate) fn decode(kind: ElementType, bytes: &[u8]) -> Option<Value<'_>> {
    fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.first_chunk::<N>().copied()
    }
    Some(match kind {
        ElementType::Double => Value::Double(f64::from_le_bytes(fixed(bytes)?)),
        ElementType::String => Value::String(text(bytes)?),
        ElementType::Document => Value::Document(Doc { bytes }),
        ElementType::Array => Value::Array(Doc { bytes }),
        ElementType::Binary => Value::Binary { subtype: *bytes.get(4)?, bytes: bytes.get(5..)? },
        ElementType::Undefined => Value::Undefined,
        ElementType::ObjectId => Value::ObjectId(fixed(bytes)?),
        ElementType::Bool => Value::Bool(*bytes.first()? != 0),
        ElementType::DateTime => Value::DateTime(i64::from_le_bytes(fixed(bytes)?)),
        ElementType::Null => Value::Null,
        ElementType::Regex => {
            let end = bytes.iter().position(|&byte| byte == 0)?;
            Value::Regex { pattern: bytes.get(..end)?, options: bytes.get(end + 1..bytes.len() - 1)? }
        }
        ElementType::DbPointer => {
            let (namespace, id) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
            Value::DbPointer { namespace: text(namespace)?, id: fixed(id)? }
        }
        ElementType::JavaScript => Value::JavaScript(text(bytes)?),
        ElementType::Symbol => Value::Symbol(text(bytes)?),
        ElementType::JavaScriptWithScope => {
            let inner = bytes.get(4..)?;
            let (code, scope) = inner.split_at_checked(string_size(inner)?)?;
            Value::JavaScriptWithScope { code: text(code)?, scope: Doc::new(scope).ok()? }
        }
        ElementType::Int32 => Value::Int32(prefix(bytes)?),
        ElementType::Timestamp => Value::Timestamp(Timestamp::from_u64(u64::from_le_bytes(fixed(bytes)?))),
        ElementType::Int64 => Value::Int64(i64::from_le_bytes(fixed(bytes)?)),
        ElementType::Decimal128 => Value::Decimal128(fixed(bytes)?),
        ElementType::MinKey => Value::MinKey,
        ElementType::MaxKey => Value::MaxKey,
    })
}
