//! The key pattern of a sharded collection, and the keys it cuts out of documents and queries.

use crate::equality::Found;
use document::{Doc, DocBuf, ElementType, Field, Value};
use smallvec::SmallVec;

use crate::bounds::{self, KeyRanges};
use crate::collation::{Collation, is_collatable};
use crate::equality::Equalities;
use crate::error::ShardKeyError;
use crate::hash;
use crate::key::ShardKey;

/// One field of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    /// Its dotted path.
    pub path: Box<str>,
    /// Are its values hashed?
    pub hashed: bool,
}

impl AsRef<str> for KeyField {
    fn as_ref(&self) -> &str {
        &self.path
    }
}

/// `{a: 1, "b.c": "hashed"}`: the ordered paths whose values make the shard key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    fields: Box<[KeyField]>,
    doc: DocBuf,
}

impl KeyPattern {
    /// From `key` of config.collections or of `shardCollection`.
    pub fn parse(doc: Doc<'_>) -> Result<Self, ShardKeyError> {
        let refuse = |reason: String| ShardKeyError::Pattern { reason };
        let mut fields = Vec::new();
        for field in doc {
            let path = field.name();
            if path.is_empty() || path.split('.').any(|part| part.is_empty() || part.starts_with('$')) {
                return Err(refuse(format!("'{path}' is no path of a shard key")));
            }
            let hashed = match field.value() {
                Value::String(b"hashed") => true,
                value if value.as_i64() == Some(1) => false,
                _ => return Err(refuse(format!("the value of '{path}' must be 1 or 'hashed'"))),
            };
            if fields.iter().any(|known: &KeyField| overlap(&known.path, path)) {
                return Err(refuse(format!("'{path}' overlaps with another field")));
            }
            fields.push(KeyField { path: path.into(), hashed });
        }
        if fields.is_empty() {
            return Err(refuse("it is empty".to_owned()));
        }
        if fields.iter().filter(|field| field.hashed).count() > 1 {
            return Err(refuse("only one field can be hashed".to_owned()));
        }
        Ok(Self { fields: fields.into(), doc: doc.into() })
    }

    /// Its document, as it was given.
    #[must_use]
    pub fn as_doc(&self) -> Doc<'_> {
        self.doc.as_doc()
    }

    /// Its fields in order.
    #[must_use]
    pub fn fields(&self) -> &[KeyField] {
        &self.fields
    }

    /// Does it have a hashed field?
    #[must_use]
    pub fn is_hashed(&self) -> bool {
        self.fields.iter().any(|field| field.hashed)
    }

    /// Is it `{_id: 1}` or `{_id: "hashed"}`?
    #[must_use]
    pub fn is_id(&self) -> bool {
        matches!(&*self.fields, [field] if &*field.path == "_id")
    }

    /// The key of a document that is stored: missing fields are null, hashed fields hashed, arrays refused.
    pub fn key_from_document(&self, document: Doc<'_>) -> Result<ShardKey, ShardKeyError> {
        self.key_of(|path| lookup(document, path))
    }

    /// The key of a replacement: as of a document, but an `_id` that it does not have is the one of the query.
    pub fn key_from_replacement(
        &self,
        replacement: Doc<'_>,
        query: Doc<'_>,
    ) -> Result<ShardKey, ShardKeyError> {
        let id = if replacement.contains("_id") { None } else { Equalities::of_path(query, "_id") };
        self.key_of(|path| match (path, id) {
            ("_id", Some(id)) => Found::Value(id),
            _ => lookup(replacement, path),
        })
    }

    fn key_of<'a>(&self, mut find: impl FnMut(&str) -> Found<Field<'a>>) -> Result<ShardKey, ShardKeyError> {
        let mut key = ShardKey::builder();
        for KeyField { path, hashed } in &self.fields {
            match find(path) {
                Found::Array => return Err(ShardKeyError::ArrayInKey),
                Found::Value(field) if field.element_type() == ElementType::Array => {
                    return Err(ShardKeyError::ArrayInKey);
                }
                Found::Value(field) if *hashed => key.push_i64(hash::hash_field(field)),
                Found::Value(field) => key.push(field),
                Found::Missing if *hashed => key.push_i64(hash::NULL_HASH),
                Found::Missing => key.push_raw(ElementType::Null, &[]),
            }
        }
        Ok(key.finish())
    }

    /// The key that a query binds by equality in every field, if it does. Does not look at collations: see
    /// [`KeyPattern::collation_hides`].
    #[must_use]
    pub fn key_from_query(&self, query: Doc<'_>) -> Option<ShardKey> {
        Equalities::collect(self, query).and_then(|found| self.key_of_equalities(&found))
    }

    /// The field for whose value in this query a collation other than simple forbids to target one shard by key:
    /// a hashed field, or a string, object or array. The server's error for it is 61 `Cannot target single shard
    /// due to collation of key <field> for namespace <ns>`.
    #[must_use]
    pub fn collation_hides(&self, query: Doc<'_>) -> Option<&KeyField> {
        let found = Equalities::collect(self, query)?;
        let hides = |(field, value): (&KeyField, Field<'_>)| field.hashed || is_collatable(value.value());
        self.fields.iter().zip(&found.values).find_map(|(field, value)| {
            let value = (*value)?;
            hides((field, value)).then_some(field)
        })
    }

    fn key_of_equalities(&self, found: &Equalities<'_>) -> Option<ShardKey> {
        let mut key = ShardKey::builder();
        for (field, value) in self.fields.iter().zip(&found.values) {
            let value = (*value)?;
            if field.hashed {
                key.push_i64(hash::hash_field(value));
            } else {
                key.push(value);
            }
        }
        Some(key.finish())
    }

    /// The part of the key space in which everything lies that this filter matches.
    pub fn ranges(&self, filter: Doc<'_>, collation: Collation) -> Result<KeyRanges, ShardKeyError> {
        if let Some(found) = Equalities::collect(self, filter)
            && found.values.iter().zip(&self.fields).all(|(value, field)| {
                value.is_some_and(|value| {
                    // Null equals undefined too, which is another point: left to the bounds.
                    value.element_type() != ElementType::Null
                        && (collation == Collation::Simple || !(field.hashed || is_collatable(value.value())))
                })
            })
            && let Some(key) = self.key_of_equalities(&found)
        {
            return Ok(KeyRanges::Key(key));
        }
        bounds::ranges(self, filter, collation)
    }

    /// A key with its field names, as config.chunks and error texts have it.
    #[must_use]
    pub fn name_fields(&self, key: Doc<'_>) -> DocBuf {
        let mut named = DocBuf::with_capacity(key.as_bytes().len() + self.doc.as_bytes().len());
        named.write(|w| {
            for (KeyField { path, .. }, field) in self.fields.iter().zip(key) {
                w.renamed(path, field);
            }
        });
        named
    }

    /// The lower end of the key space.
    #[must_use]
    pub fn global_min(&self) -> ShardKey {
        self.filled(&[], ElementType::MinKey)
    }

    /// The upper end of the key space, which belongs to no chunk.
    #[must_use]
    pub fn global_max(&self) -> ShardKey {
        self.filled(&[], ElementType::MaxKey)
    }

    /// Has the document exactly the fields of the pattern, in order (a chunk bound, a split point)?
    #[must_use]
    pub fn is_full_key(&self, doc: Doc<'_>) -> bool {
        doc.iter().count() == self.fields.len() && self.is_prefix(doc)
    }

    fn is_prefix(&self, doc: Doc<'_>) -> bool {
        let mut expected = self.fields.iter();
        doc.iter().all(|field| expected.next().is_some_and(|known| &*known.path == field.name()))
    }

    /// The bound of a zone, split or range move that a user gave by a prefix of the key: fields that are missing
    /// become MinKey, or MaxKey if all that were given are MaxKey (seen on 6.0.5 for both ends of a zone).
    pub fn extend_bound(&self, bound: Doc<'_>) -> Result<ShardKey, ShardKeyError> {
        let given: SmallVec<[Field<'_>; 4]> = bound.iter().collect();
        if given.is_empty() || !self.is_prefix(bound) {
            return Err(ShardKeyError::Bound {
                bound: format!("{bound:?}"),
                pattern: format!("{:?}", self.as_doc()),
            });
        }
        let upper = given.iter().all(|field| field.element_type() == ElementType::MaxKey);
        Ok(self.filled(&given, if upper { ElementType::MaxKey } else { ElementType::MinKey }))
    }

    fn filled(&self, given: &[Field<'_>], rest: ElementType) -> ShardKey {
        let mut key = ShardKey::builder();
        for field in given {
            key.push(*field);
        }
        for _ in given.len()..self.fields.len() {
            key.push_raw(rest, &[]);
        }
        key.finish()
    }
}

/// Is one path the other, or a parent of it?
fn overlap(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Follows a dotted path through sub-documents, to the field itself.
pub(crate) fn lookup<'a>(document: Doc<'a>, path: &str) -> Found<Field<'a>> {
    let (mut doc, mut rest) = (document, path);
    loop {
        let (head, tail) = rest.split_once('.').map_or((rest, None), |(head, tail)| (head, Some(tail)));
        let Some(field) = doc.field(head) else { return Found::Missing };
        let Some(tail) = tail else { return Found::Value(field) };
        match field.value() {
            Value::Document(inner) => (doc, rest) = (inner, tail),
            Value::Array(_) => return Found::Array,
            _ => return Found::Missing,
        }
    }
}
