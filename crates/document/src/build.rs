//! Writing documents: into a buffer of one's own ([`DocBuf`]) or at the end of somebody else's ([`DocWriter`]).

use crate::value::{Timestamp, Value};
use crate::view::Doc;

/// An owned document that is always complete: every `append` leaves a valid one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DocBuf {
    bytes: Vec<u8>,
}

impl Default for DocBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for DocBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_doc().fmt(f)
    }
}

impl From<Doc<'_>> for DocBuf {
    fn from(doc: Doc<'_>) -> Self {
        Self { bytes: doc.as_bytes().to_vec() }
    }
}

impl DocBuf {
    /// `{}`
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: Doc::empty().as_bytes().to_vec() }
    }

    /// `{}` with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity.max(5));
        bytes.extend_from_slice(Doc::empty().as_bytes());
        Self { bytes }
    }

    /// The document.
    #[must_use]
    pub fn as_doc(&self) -> Doc<'_> {
        Doc::new(&self.bytes).unwrap_or(Doc::empty())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, owned.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds fields with a writer; length and terminator are put right afterwards.
    pub fn write(&mut self, fill: impl FnOnce(&mut DocWriter<'_>)) -> &mut Self {
        self.bytes.pop();
        fill(&mut DocWriter { out: &mut self.bytes });
        self.bytes.push(0);
        patch_length(&mut self.bytes, 0);
        self
    }

    /// Adds one field.
    pub fn append<'v>(&mut self, name: &str, value: impl Into<Value<'v>>) -> &mut Self {
        let value = value.into();
        self.write(|w| w.value(name, value))
    }

    /// Adds a sub-document.
    pub fn append_doc(&mut self, name: &str, fill: impl FnOnce(&mut DocWriter<'_>)) -> &mut Self {
        self.write(|w| w.doc(name, fill))
    }

    /// Adds elements as they are (see [`crate::Field::raw`] and [`Doc::elements`]).
    pub fn append_elements(&mut self, elements: &[u8]) -> &mut Self {
        self.write(|w| w.elements(elements))
    }
}

/// Writes elements at the end of a buffer; the caller owns length prefix and terminator around them.
#[derive(Debug)]
pub struct DocWriter<'b> {
    out: &'b mut Vec<u8>,
}

impl<'b> DocWriter<'b> {
    /// Writes bare elements to the end of `out`.
    #[must_use]
    pub const fn new(out: &'b mut Vec<u8>) -> Self {
        Self { out }
    }

    fn head(&mut self, code: u8, name: &str) {
        self.out.push(code);
        // A zero byte in a name would end it early and shift all that follows.
        self.out.extend(name.bytes().filter(|&byte| byte != 0));
        self.out.push(0);
    }

    fn text(&mut self, bytes: &[u8]) {
        self.length(bytes.len() + 1);
        self.out.extend_from_slice(bytes);
        self.out.push(0);
    }

    fn length(&mut self, length: usize) {
        // Documents are bounded far below 2 GiB by the message limit.
        self.out.extend_from_slice(&i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes());
    }

    /// Adds one field.
    pub fn value(&mut self, name: &str, value: Value<'_>) {
        self.head(value.element_type() as u8, name);
        match value {
            Value::Double(n) => self.out.extend_from_slice(&n.to_le_bytes()),
            Value::String(s) | Value::JavaScript(s) | Value::Symbol(s) => self.text(s),
            Value::Document(doc) | Value::Array(doc) => self.out.extend_from_slice(doc.as_bytes()),
            Value::Binary { subtype, bytes } => {
                self.length(bytes.len());
                self.out.push(subtype);
                self.out.extend_from_slice(bytes);
            }
            Value::Undefined | Value::Null | Value::MinKey | Value::MaxKey => {}
            Value::ObjectId(id) => self.out.extend_from_slice(&id),
            Value::Bool(flag) => self.out.push(u8::from(flag)),
            Value::DateTime(n) | Value::Int64(n) => self.out.extend_from_slice(&n.to_le_bytes()),
            Value::Regex { pattern, options } => {
                self.out.extend_from_slice(pattern);
                self.out.push(0);
                self.out.extend_from_slice(options);
                self.out.push(0);
            }
            Value::DbPointer { namespace, id } => {
                self.text(namespace);
                self.out.extend_from_slice(&id);
            }
            Value::JavaScriptWithScope { code, scope } => {
                self.length(4 + 4 + code.len() + 1 + scope.as_bytes().len());
                self.text(code);
                self.out.extend_from_slice(scope.as_bytes());
            }
            Value::Int32(n) => self.out.extend_from_slice(&n.to_le_bytes()),
            Value::Timestamp(time) => self.out.extend_from_slice(&time.as_u64().to_le_bytes()),
            Value::Decimal128(bytes) => self.out.extend_from_slice(&bytes),
        }
    }

    /// Adds a value of any type that has a BSON form here.
    pub fn put<'v>(&mut self, name: &str, value: impl Into<Value<'v>>) {
        self.value(name, value.into());
    }

    /// Adds a sub-document.
    pub fn doc(&mut self, name: &str, fill: impl FnOnce(&mut DocWriter<'_>)) {
        self.nested(0x03, name, fill);
    }

    /// Adds an array of sub-documents, strings, ...: each item is written by `item` under its index.
    pub fn array<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut DocWriter<'_>, &str, T),
    ) {
        self.nested(0x04, name, |w| {
            for (index, each) in items.into_iter().enumerate() {
                item(w, &index.to_string(), each);
            }
        });
    }

    /// Adds elements as they are.
    pub fn elements(&mut self, elements: &[u8]) {
        self.out.extend_from_slice(elements);
    }

    /// Adds the value of a field under another name, copied as bytes.
    pub fn renamed(&mut self, name: &str, field: crate::Field<'_>) {
        self.head(field.element_type() as u8, name);
        self.out.extend_from_slice(field.value_bytes());
    }

    fn nested(&mut self, code: u8, name: &str, fill: impl FnOnce(&mut DocWriter<'_>)) {
        self.head(code, name);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        fill(&mut DocWriter { out: self.out });
        self.out.push(0);
        patch_length(self.out, start);
    }
}

/// Writes the length of the document that starts at `start` and ends with the buffer.
fn patch_length(bytes: &mut [u8], start: usize) {
    let length = i32::try_from(bytes.len() - start).unwrap_or(i32::MAX);
    if let Some(slot) = bytes.get_mut(start..start + 4) {
        slot.copy_from_slice(&length.to_le_bytes());
    }
}

impl From<i32> for Value<'_> {
    fn from(n: i32) -> Self {
        Value::Int32(n)
    }
}
impl From<i64> for Value<'_> {
    fn from(n: i64) -> Self {
        Value::Int64(n)
    }
}
impl From<f64> for Value<'_> {
    fn from(n: f64) -> Self {
        Value::Double(n)
    }
}
impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}
impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::String(text.as_bytes())
    }
}
impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::String(text.as_bytes())
    }
}
impl<'a> From<Doc<'a>> for Value<'a> {
    fn from(doc: Doc<'a>) -> Self {
        Value::Document(doc)
    }
}
impl<'a> From<&'a DocBuf> for Value<'a> {
    fn from(doc: &'a DocBuf) -> Self {
        Value::Document(doc.as_doc())
    }
}
impl From<Timestamp> for Value<'_> {
    fn from(time: Timestamp) -> Self {
        Value::Timestamp(time)
    }
}
