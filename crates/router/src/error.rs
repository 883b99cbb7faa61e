//! The one error of a command: what the client reads, and what the router decides by.

use document::{Doc, DocBuf, DocWriter, Value};

use crate::codes::ErrorCode;

/// Why a command failed, as it will be answered.
#[derive(Debug, Clone)]
pub struct CommandError {
    code: ErrorCode,
    /// A few commands fail without a code (`replSetGetStatus`, `split` with bad arguments).
    shows_code: bool,
    message: String,
    /// Fields that go with the code (`ns`, `vWanted`, `keyValue`, `resolvedView`, ...).
    extra: Option<DocBuf>,
    labels: Vec<String>,
    /// Fresher routing would not help.
    settled: bool,
    /// The server that said so.
    origin: Option<Box<str>>,
}

/// The result of a command or a part of it.
pub type CommandResult<T> = Result<T, CommandError>;

/// What a server says before an error of a pipeline's first batch.
const AGGREGATION_CONTEXT: &str = "PlanExecutor error during aggregation :: caused by :: ";

/// Fields of an error reply that are not extra information.
const ENVELOPE: &[&str] = &[
    "ok",
    "errmsg",
    "code",
    "codeName",
    "errorLabels",
    "$clusterTime",
    "operationTime",
    "$configTime",
    "$topologyTime",
    "lastCommittedOpTime",
    "topologyVersion",
    "$gleStats",
    "electionId",
    "opTime",
    "readOnly",
    "$configServerState",
    "$replData",
    "$oplogQueryData",
];

impl CommandError {
    /// An error with MongoDB's code and a text for the client.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            shows_code: true,
            message: message.into(),
            extra: None,
            labels: Vec::new(),
            settled: false,
            origin: None,
        }
    }

    /// An error that mongos gives without any code.
    #[must_use]
    pub fn without_code(message: impl Into<String>) -> Self {
        Self { shows_code: false, ..Self::new(ErrorCode::UnknownError, message) }
    }

    /// `BadValue`
    #[must_use]
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadValue, message)
    }

    /// `FailedToParse`
    #[must_use]
    pub fn failed_to_parse(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::FailedToParse, message)
    }

    /// `InvalidOptions`
    #[must_use]
    pub fn invalid_options(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidOptions, message)
    }

    /// What Pointsman does not do (yet): refused by name.
    #[must_use]
    pub fn not_supported(what: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::CommandNotSupported, format!("{what} is not supported by this router yet"))
    }

    /// A field of the wrong type, in the server's words (6.0).
    #[must_use]
    pub fn wrong_type(field: &str, actual: Value<'_>, expected: &str) -> Self {
        Self::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{field}' is the wrong type '{}', expected type '{expected}'",
                actual.element_type().name()
            ),
        )
    }

    /// From the body of a reply with `ok: 0`.
    #[must_use]
    pub fn from_reply(body: Doc<'_>) -> Self {
        let mut error = Self::new(ErrorCode::UnknownError, "");
        error.shows_code = false;
        let mut extra = DocBuf::new();
        for field in body {
            match field.name() {
                "errmsg" => field.value().as_str().unwrap_or_default().clone_into(&mut error.message),
                "code" => {
                    if let Some(code) = field.value().as_i64().and_then(|code| i32::try_from(code).ok()) {
                        error.code = ErrorCode(code);
                        error.shows_code = true;
                    }
                }
                "errorLabels" => {
                    error.labels = field
                        .value()
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|label| label.value().as_str().map(ToOwned::to_owned))
                        .collect();
                }
                name if ENVELOPE.contains(&name) => {}
                _ => {
                    extra.append_elements(field.raw());
                }
            }
        }
        if !extra.as_doc().is_empty() {
            error.extra = Some(extra);
        }
        error
    }

    /// From one element of `writeErrors`.
    #[must_use]
    pub fn from_write_error(item: Doc<'_>) -> Self {
        let mut error = Self::from_reply(item);
        if let Some(extra) = error.extra.take() {
            let mut rest = DocBuf::new();
            for field in extra.as_doc() {
                if field.name() != "index" {
                    rest.append_elements(field.raw());
                }
            }
            if !rest.as_doc().is_empty() {
                error.extra = Some(rest);
            }
        }
        error
    }

    /// Its code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// Its text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The fields that go with its code.
    #[must_use]
    pub fn extra(&self) -> Doc<'_> {
        self.extra.as_ref().map_or(Doc::empty(), DocBuf::as_doc)
    }

    /// Puts a context in front of the text, as the server does.
    #[must_use]
    pub fn context(mut self, context: impl std::fmt::Display) -> Self {
        self.message = format!("{context} :: caused by :: {}", self.message);
        self
    }

    /// Says which server it came from.
    #[must_use]
    pub fn from_server(mut self, address: &str) -> Self {
        self.origin = Some(address.into());
        self
    }

    /// An error of a shard's first batch as mongos gives it, which asks for the first documents by a getMore.
    #[must_use]
    pub fn of_remote_cursor(mut self) -> Self {
        if let (Some(origin), Some(text)) = (&self.origin, self.message.strip_prefix(AGGREGATION_CONTEXT)) {
            self.message = format!(
                "Error on remote shard {origin} :: caused by :: Executor error during getMore :: caused by :: {text}"
            );
        }
        self
    }

    /// An error of the merge as mongos gives it where it merges by itself.
    #[must_use]
    pub fn of_own_merge(mut self) -> Self {
        if let Some(text) = self.message.strip_prefix(AGGREGATION_CONTEXT) {
            self.message = text.to_owned();
        }
        self
    }

    /// Adds a field that goes with the code.
    #[must_use]
    pub fn with_extra<'v>(mut self, name: &str, value: impl Into<Value<'v>>) -> Self {
        self.extra.get_or_insert_with(DocBuf::new).append(name, value);
        self
    }

    /// Adds a label, once.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        if !self.labels.iter().any(|known| known == label) {
            self.labels.push(label.to_owned());
        }
        self
    }

    /// Replaces all labels.
    #[must_use]
    pub fn with_labels(mut self, labels: Vec<String>) -> Self {
        self.labels = labels;
        self
    }

    /// Its labels.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Says that no attempt with fresher routing may follow: the transaction that it belongs to is over.
    #[must_use]
    pub const fn settled(mut self) -> Self {
        self.settled = true;
        self
    }

    /// Is another attempt with fresher routing ruled out?
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.settled
    }

    /// State-change errors of a shard never reach a driver as such: it would mark the *router* as unknown and clear
    /// its pool. mongos rewrites them to `HostUnreachable` (parameter `rewriteStateChangeErrors`, 5.0).
    #[must_use]
    pub fn cloaked(mut self) -> Self {
        if self.code.is_not_primary() || self.code.is_shutdown() {
            self.code = ErrorCode::HostUnreachable;
            self.message = self
                .message
                .replace("not master", "(NOT_PRIMARY)")
                .replace("node is recovering", "(NODE_IS_RECOVERING)");
        }
        self
    }

    /// Writes `ok, errmsg, code, codeName, <extra>, errorLabels`: mongos's order.
    pub fn write_reply(&self, w: &mut DocWriter<'_>) {
        w.put("ok", 0.0);
        w.put("errmsg", self.message.as_str());
        if self.shows_code {
            w.put("code", self.code.0);
            w.put("codeName", self.code.name().as_ref());
        }
        w.elements(self.extra().elements());
        if !self.labels.is_empty() {
            w.array("errorLabels", &self.labels, |w, name, label| w.put(name, label));
        }
    }

    /// Writes the inside of one element of `writeErrors`: `index, code, errmsg, <extra>` (no codeName, seen on 6.0.5).
    pub fn write_item(&self, w: &mut DocWriter<'_>, index: i32) {
        w.put("index", index);
        w.put("code", self.code.0);
        w.put("errmsg", self.message.as_str());
        w.elements(self.extra().elements());
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for CommandError {}
