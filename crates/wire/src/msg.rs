//! OP_MSG from a client: flags, one body, any number of document sequences; all of it validated, none copied.

use std::ops::Range;

use bytes::Bytes;
use document::Doc;
use smallvec::SmallVec;

use crate::compress::Compressor;
use crate::error::WireError;
use crate::flags::MsgFlags;
use crate::frame::Frame;
use crate::header::{Header, OpCode};
use crate::limits::MAX_INTERNAL_DOCUMENT_BYTES;
use crate::sections::{Section, open};

/// A parsed request. It holds the message's bytes; all views borrow from it.
#[derive(Debug, Clone)]
pub struct OpMsg {
    frame: Frame,
    flags: MsgFlags,
    body: Range<usize>,
    sequences: SmallVec<[SequenceRange; 1]>,
}

#[derive(Debug, Clone)]
struct SequenceRange {
    identifier: Range<usize>,
    documents: Range<usize>,
    count: usize,
}

/// The documents of one section of kind 1, with the name of the field they stand for.
#[derive(Debug, Clone, Copy)]
pub struct DocumentSequence<'a> {
    identifier: &'a [u8],
    documents: &'a [u8],
    count: usize,
}

/// Iterator over documents that stand one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Documents<'a> {
    rest: &'a [u8],
}

impl OpMsg {
    /// Parses and validates a request. Take the header off `frame` before: an error reply needs its requestId.
    pub fn parse(frame: Frame) -> Result<OpMsg, WireError> {
        if frame.header().opcode != OpCode::MSG {
            return Err(WireError::OpCode(frame.header().opcode.0));
        }
        let message: &[u8] = frame.bytes();
        let (flags, mut sections) = open(message)?;
        let mut body = None;
        let mut sequences: SmallVec<[SequenceRange; 1]> = SmallVec::new();
        while let Some(section) = sections.next()? {
            match section {
                Section::Body(range) => {
                    check_document(slice(message, &range))?;
                    body = Some(range);
                }
                Section::Sequence { identifier, documents } => {
                    let name = slice(message, &identifier);
                    if sequences.iter().any(|other| slice(message, &other.identifier) == name) {
                        return Err(WireError::DuplicateSequence(String::from_utf8_lossy(name).into_owned()));
                    }
                    let count = check_documents(slice(message, &documents))?;
                    sequences.push(SequenceRange { identifier, documents, count });
                }
            }
        }
        let body = body.ok_or(WireError::NoBody)?;
        if !sequences.is_empty() {
            let fields = Doc::new(slice(message, &body)).map_err(WireError::Document)?;
            for sequence in &sequences {
                let name = slice(message, &sequence.identifier);
                if fields.iter().any(|field| field.name_bytes() == name) {
                    return Err(WireError::SequenceInBody(String::from_utf8_lossy(name).into_owned()));
                }
            }
        }
        Ok(OpMsg { frame, flags, body, sequences })
    }

    /// The header of the message.
    pub fn header(&self) -> &Header {
        self.frame.header()
    }

    /// The flag bits.
    pub fn flags(&self) -> MsgFlags {
        self.flags
    }

    /// The client does not wait for an answer, and must not get one.
    pub fn more_to_come(&self) -> bool {
        self.flags.contains(MsgFlags::MORE_TO_COME)
    }

    /// The client takes a stream of answers.
    pub fn exhaust_allowed(&self) -> bool {
        self.flags.contains(MsgFlags::EXHAUST_ALLOWED)
    }

    /// The client sent a (right) checksum; the answer carries one too, as a mongod's does.
    pub fn has_checksum(&self) -> bool {
        self.flags.contains(MsgFlags::CHECKSUM_PRESENT)
    }

    /// How the message was compressed; the answer goes back the same way.
    pub fn compressor(&self) -> Option<Compressor> {
        self.frame.compressor()
    }

    /// The body.
    pub fn body(&self) -> Doc<'_> {
        // Validated by `parse`: the fallback cannot be seen.
        Doc::new(slice(self.frame.bytes(), &self.body)).unwrap_or(Doc::empty())
    }

    /// The bytes of the body, sharing the message's buffer (which lives as long as they do).
    pub fn body_bytes(&self) -> Bytes {
        self.frame.bytes().slice(self.body.clone())
    }

    /// The document sequences in the order they came.
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = DocumentSequence<'_>> + Clone {
        self.sequences.iter().map(|sequence| DocumentSequence {
            identifier: slice(self.frame.bytes(), &sequence.identifier),
            documents: slice(self.frame.bytes(), &sequence.documents),
            count: sequence.count,
        })
    }

    /// The document sequence of this name.
    pub fn sequence(&self, identifier: &str) -> Option<DocumentSequence<'_>> {
        self.sequences().find(|sequence| sequence.identifier == identifier.as_bytes())
    }

    /// The message as it came (after decompression).
    pub fn frame(&self) -> &Frame {
        &self.frame
    }
}

impl<'a> DocumentSequence<'a> {
    /// The field of the command that these documents are, `documents` of an insert for one. An identifier that is no
    /// UTF-8 reads as U+FFFD, which no command has.
    pub fn identifier(&self) -> &'a str {
        std::str::from_utf8(self.identifier).unwrap_or("\u{FFFD}")
    }

    /// The bytes of the identifier, whatever they are.
    pub fn identifier_bytes(&self) -> &'a [u8] {
        self.identifier
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The documents, one after the other, as they are on the wire.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.documents
    }

    /// The documents.
    pub fn documents(&self) -> Documents<'a> {
        Documents { rest: self.documents }
    }
}

impl<'a> Documents<'a> {
    /// An iterator over documents that stand one after the other in `bytes`; it ends at the first that is none.
    pub fn new(bytes: &'a [u8]) -> Documents<'a> {
        Documents { rest: bytes }
    }

    /// The bytes not yet walked.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Documents<'a> {
    type Item = Doc<'a>;

    fn next(&mut self) -> Option<Doc<'a>> {
        let doc = Doc::prefix_of(self.rest).ok()?;
        self.rest = self.rest.get(doc.as_bytes().len()..).unwrap_or_default();
        Some(doc)
    }
}

fn slice<'a>(message: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    message.get(range.clone()).unwrap_or_default()
}

fn check_document(bytes: &[u8]) -> Result<(), WireError> {
    if bytes.len() > MAX_INTERNAL_DOCUMENT_BYTES {
        return Err(WireError::DocumentTooLarge(bytes.len()));
    }
    Doc::validate(bytes).map_err(WireError::Document)?;
    Ok(())
}

fn check_documents(mut rest: &[u8]) -> Result<usize, WireError> {
    let mut count = 0;
    while !rest.is_empty() {
        let doc = Doc::prefix_of(rest).map_err(WireError::Document)?.as_bytes();
        check_document(doc)?;
        rest = rest.get(doc.len()..).unwrap_or_default();
        count += 1;
    }
    Ok(count)
}
