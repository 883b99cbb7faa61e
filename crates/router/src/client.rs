//! Who is at the other end of a client connection: what its first hello said, and what it may use.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use document::{Doc, DocBuf};
use wire::{Compressor, CompressorSet};

use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::local::operations::Place;
use crate::origin::{Identity, Origin, Origins};

/// Most bytes of a client's metadata document (mongos; a mongod takes 1024).
const MAX_METADATA_BYTES: usize = 512;
/// Most bytes of `application.name`.
const MAX_APPLICATION_NAME_BYTES: usize = 128;

/// One client connection.
#[derive(Debug)]
pub struct Client {
    id: i64,
    peer: Option<SocketAddr>,
    /// The client's metadata with the mongos sub-document, as `$client` of each request to a shard.
    metadata: OnceLock<Option<Metadata>>,
    /// Whose connection it is; known from its first command on.
    origin: OnceLock<Arc<Origin>>,
    compressors: AtomicU8,
    /// A hello is being answered again without a new request.
    streaming: AtomicBool,
    /// The command that it waits for.
    place: Place,
}

/// What the first hello said in `client`.
#[derive(Debug)]
struct Metadata {
    forwarded: DocBuf,
    application: Option<String>,
}

impl Client {
    /// A client that said nothing yet. `peer` is `None` on a Unix socket.
    #[must_use]
    pub const fn new(id: i64, peer: Option<SocketAddr>) -> Self {
        Self {
            id,
            peer,
            metadata: OnceLock::new(),
            origin: OnceLock::new(),
            compressors: AtomicU8::new(0),
            streaming: AtomicBool::new(false),
            place: Place::new(),
        }
    }

    /// The number of the connection, as in logs and in hello.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.id
    }

    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    /// Whose connection it is: what its hello said counts when that was its first command.
    pub(crate) fn origin(&self, origins: &Origins) -> &Arc<Origin> {
        self.origin.get_or_init(|| origins.join(Identity::new(self.peer, self.metadata())))
    }

    /// The connection was closed.
    pub(crate) fn leave(&self) {
        if let Some(origin) = self.origin.get() {
            origin.leave();
        }
    }

    /// `host:port` of the other end.
    #[must_use]
    pub fn address(&self) -> String {
        self.peer.map_or_else(|| "anonymous unix socket".to_owned(), |peer| peer.to_string())
    }

    /// Does it run on this machine?
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// Was there a hello before?
    #[must_use]
    pub fn said_hello(&self) -> bool {
        self.metadata.get().is_some()
    }

    /// Is this an answer that the client did not ask for again?
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.streaming.load(Ordering::Relaxed)
    }

    /// The next answer repeats the last one ([`crate::Router::serve_again`]), or does not.
    pub fn set_streaming(&self, streaming: bool) {
        self.streaming.store(streaming, Ordering::Relaxed);
    }

    /// Takes the metadata of the first hello; every later one is refused, also an identical one (seen on 6.0.5).
    pub fn set_metadata(
        &self,
        metadata: Option<Doc<'_>>,
        router_host: &str,
        version: &str,
    ) -> CommandResult<()> {
        let Some(doc) = metadata else {
            // A first hello without metadata closes the matter as well.
            self.metadata.get_or_init(|| None);
            return Ok(());
        };
        if self.metadata.get().is_some() {
            return Err(CommandError::new(
                ErrorCode::ClientMetadataCannotBeMutated,
                "The client metadata document may only be sent in the first hello",
            ));
        }
        let application = check_metadata(doc)?;
        let mut forwarded = DocBuf::with_capacity(doc.as_bytes().len() + 128);
        forwarded.append_elements(doc.elements()).append_doc("mongos", |w| {
            w.put("host", router_host);
            w.put("client", self.address().as_str());
            w.put("version", version);
        });
        self.metadata.get_or_init(|| Some(Metadata { forwarded, application }));
        Ok(())
    }

    /// `$client` of every request made for this client.
    #[must_use]
    pub fn metadata(&self) -> Option<Doc<'_>> {
        Some(self.metadata.get()?.as_ref()?.forwarded.as_doc())
    }

    /// `application.name`
    #[must_use]
    pub fn application(&self) -> Option<&str> {
        self.metadata.get()?.as_ref()?.application.as_deref()
    }

    /// The ways of compression that client and router agreed on.
    #[must_use]
    pub fn compressors(&self) -> CompressorSet {
        let bits = self.compressors.load(Ordering::Relaxed);
        Compressor::ALL
            .into_iter()
            .filter(|compressor| bits & (1 << compressor.id()) != 0)
            .fold(CompressorSet::NONE, CompressorSet::with)
    }

    /// Client and router agreed on these.
    pub fn agree_on(&self, compressors: CompressorSet) {
        let bits = compressors.iter().fold(0, |bits, compressor| bits | (1_u8 << compressor.id()));
        self.compressors.store(bits, Ordering::Relaxed);
    }
}

/// The rules for `client` in a hello (mongos 5.0; codes seen on 6.0.5). Gives the application's name.
fn check_metadata(doc: Doc<'_>) -> CommandResult<Option<String>> {
    let size = doc.as_bytes().len();
    if size > MAX_METADATA_BYTES {
        return Err(CommandError::new(
            ErrorCode::ClientMetadataDocumentTooLarge,
            format!("The client metadata document must be less then or equal to {MAX_METADATA_BYTES} bytes"),
        ));
    }
    let missing = |what: String| CommandError::new(ErrorCode::ClientMetadataMissingField, what);
    for (part, fields) in [("driver", &["name", "version"][..]), ("os", &["type"][..])] {
        let Some(value) = doc.get(part) else {
            return Err(missing(format!(
                "Missing required sub-document '{part}' in the client metadata document"
            )));
        };
        let Some(inner) = value.as_doc() else {
            return Err(CommandError::new(
                ErrorCode::TypeMismatch,
                format!(
                    "The '{part}' field is required to be a BSON document in the client metadata document"
                ),
            ));
        };
        for field in fields {
            if inner.get_str(field).is_none() {
                return Err(missing(format!(
                    "Missing required field '{field}' in sub-document '{part}' of the client metadata document"
                )));
            }
        }
    }
    let name = doc.get_doc("application").and_then(|application| application.get_str("name"));
    if name.is_some_and(|name| name.len() > MAX_APPLICATION_NAME_BYTES) {
        return Err(CommandError::new(
            ErrorCode::ClientMetadataAppNameTooLarge,
            format!(
                "The 'application.name' field must be less then or equal to {MAX_APPLICATION_NAME_BYTES} bytes in length"
            ),
        ));
    }
    Ok(name.map(ToOwned::to_owned))
}
