//! Fail points: what drivers' test suites switch on to see how a client copes.
//!
//! Only with `enableTestCommands`. Nothing costs more than one atomic load while none is on.

use std::sync::atomic::{AtomicBool, Ordering};

use document::{Doc, DocBuf, Value};
use parking_lot::Mutex;
use tokio::time::Duration;

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Codes whose errors carry fields of their own; without `errorExtraInfo` they cannot be made (seen on 6.0.5).
const CODES_WITH_EXTRA_INFO: &[ErrorCode] = &[
    ErrorCode::StaleConfig,
    ErrorCode::StaleDbVersion,
    ErrorCode::StaleEpoch,
    ErrorCode::CommandOnShardedViewNotSupportedOnMongod,
    ErrorCode::CannotImplicitlyCreateCollection,
];

/// The fail points that are switched on.
#[derive(Debug, Default)]
pub struct FailPoints {
    armed: AtomicBool,
    points: Mutex<Points>,
}

#[derive(Debug, Default)]
struct Points {
    fail_command: Point,
    max_time_always_times_out: Point,
    max_time_never_times_out: Point,
    get_more_after_checkout: Point,
}

/// One fail point.
#[derive(Debug, Default)]
struct Point {
    mode: Mode,
    data: DocBuf,
    /// How often it was hit since the process began.
    count: i64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Mode {
    #[default]
    Off,
    AlwaysOn,
    Times(i64),
    Skip(i64),
    Probability(f64),
}

impl Points {
    fn named(&mut self, name: &str) -> Option<&mut Point> {
        match name {
            "failCommand" => Some(&mut self.fail_command),
            "maxTimeAlwaysTimeOut" => Some(&mut self.max_time_always_times_out),
            "maxTimeNeverTimeOut" => Some(&mut self.max_time_never_times_out),
            "failGetMoreAfterCursorCheckout" => Some(&mut self.get_more_after_checkout),
            _ => None,
        }
    }

    fn any_on(&self) -> bool {
        [
            &self.fail_command,
            &self.max_time_always_times_out,
            &self.max_time_never_times_out,
            &self.get_more_after_checkout,
        ]
        .iter()
        .any(|point| point.mode != Mode::Off)
    }
}

impl Point {
    /// Does it act this time? Counts the hit.
    fn hit(&mut self) -> bool {
        let acts = match &mut self.mode {
            Mode::Off => false,
            Mode::AlwaysOn => true,
            Mode::Times(left) => {
                *left -= 1;
                if *left <= 0 {
                    self.mode = Mode::Off;
                }
                true
            }
            Mode::Skip(left) if *left > 0 => {
                *left -= 1;
                false
            }
            Mode::Skip(_) => true,
            Mode::Probability(p) => rand::random::<f64>() < *p,
        };
        if acts {
            self.count += 1;
        }
        acts
    }
}

impl FailPoints {
    fn armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// The data of failCommand, when it acts on this command. Counts the hit when `counts` says that this is the moment to.
    fn fail_command(&self, op: &Op<'_>, moment: Moment) -> Option<DocBuf> {
        let mut points = self.points.lock();
        let point = &mut points.fail_command;
        let data = point.data.as_doc();
        if point.mode == Mode::Off || !concerns(data, op) || Moment::of(data) != moment || !point.hit() {
            return None;
        }
        let data = point.data.clone();
        let any_on = points.any_on();
        self.armed.store(any_on, Ordering::Relaxed);
        Some(data)
    }
}

/// When failCommand acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Instead of the command.
    Before,
    /// On the reply of the command that ran.
    After,
}

impl Moment {
    fn of(data: Doc<'_>) -> Self {
        let instead = data.contains("errorCode") || data.get("closeConnection").is_some_and(Value::is_truthy);
        if data.contains("writeConcernError") && !instead { Self::After } else { Self::Before }
    }
}

/// Is the command of the kind that the data names?
fn concerns(data: Doc<'_>, op: &Op<'_>) -> bool {
    if op.command.name == "configureFailPoint" {
        return false;
    }
    let named = data.get_array("failCommands").into_iter().flatten().any(|name| {
        name.value()
            .as_str()
            .is_some_and(|name| name == op.command.name || op.command.aliases.contains(&name))
    });
    if !named {
        return false;
    }
    if data.get_str("appName").is_some_and(|name| application(op) != Some(name)) {
        return false;
    }
    if data.get_str("threadName").is_some_and(|name| name != format!("conn{}", op.client.id())) {
        return false;
    }
    match data.get_str("namespace") {
        None => true,
        Some(wanted) => op
            .request
            .target
            .as_str()
            .or_else(|| op.request.body.get_str("collection"))
            .is_some_and(|collection| wanted == format!("{}.{collection}", op.request.db)),
    }
}

/// What a fail point does to a command.
#[derive(Debug)]
pub enum Failure {
    /// Answer with this error.
    Error(CommandError),
    /// Close the connection without an answer.
    Close,
}

/// Before the handler: fail, wait or close, as configured.
pub async fn before(op: &Op<'_>) -> Result<(), Failure> {
    if !op.router.fail_points().armed() {
        return Ok(());
    }
    act_before(op).await
}

async fn act_before(op: &Op<'_>) -> Result<(), Failure> {
    let fail_points = op.router.fail_points();
    if op.deadline.is_some()
        && op.command.name != "configureFailPoint"
        && fail_points.points.lock().max_time_always_times_out.hit()
    {
        return Err(Failure::Error(CommandError::new(
            ErrorCode::MaxTimeMSExpired,
            "operation exceeded time limit",
        )));
    }
    let Some(data) = fail_points.fail_command(op, Moment::Before) else { return Ok(()) };
    let data = data.as_doc();
    tracing::warn!(c = "COMMAND", id = 4_898_500, command = op.command.name, "Fail point acts on a command");
    if data.get("blockConnection").is_some_and(Value::is_truthy) {
        let limit = data.get_i64("blockTimeMS").and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(limit)).await;
    }
    if data.get("closeConnection").is_some_and(Value::is_truthy) {
        return Err(Failure::Close);
    }
    match data.get_i64("errorCode").and_then(|code| i32::try_from(code).ok()) {
        Some(code) => {
            let mut error = made_error(ErrorCode(code), data);
            if op.request.in_transaction() && !data.contains("errorLabels") {
                error = crate::transaction::labelled(op, error);
            }
            // A router's own words replace a shard's state change, unless a test made it (mongos 5.0).
            let rewrites = data.get("allowRewriteStateChange").is_some_and(Value::is_truthy);
            Err(Failure::Error(if rewrites { error.cloaked() } else { error }))
        }
        None => Ok(()),
    }
}

/// In a getMore that has its cursor: fail, as configured (`failGetMoreAfterCursorCheckout`).
pub(crate) fn after_checkout(op: &Op<'_>) -> CommandResult<()> {
    let fail_points = op.router.fail_points();
    if !fail_points.armed() {
        return Ok(());
    }
    let mut points = fail_points.points.lock();
    let point = &mut points.get_more_after_checkout;
    if !point.hit() {
        return Ok(());
    }
    let code = point.data.as_doc().get_i64("errorCode").and_then(|code| i32::try_from(code).ok());
    let any_on = points.any_on();
    fail_points.armed.store(any_on, Ordering::Relaxed);
    match code {
        Some(code) => {
            Err(CommandError::new(ErrorCode(code), "Hit the 'failGetMoreAfterCursorCheckout' failpoint"))
        }
        None => Ok(()),
    }
}

fn made_error(code: ErrorCode, data: Doc<'_>) -> CommandError {
    let info = data.get_doc("errorExtraInfo");
    if CODES_WITH_EXTRA_INFO.contains(&code) && info.is_none() {
        return CommandError::new(
            ErrorCode(40671),
            format!("Missing required extra info for error code {}", code.name()),
        );
    }
    let mut error = CommandError::new(code, "Failing command via 'failCommand' failpoint");
    for field in info.into_iter().flatten() {
        error = error.with_extra(field.name(), field.value());
    }
    error.with_labels(labels(data))
}

fn labels(data: Doc<'_>) -> Vec<String> {
    let labels = data.get_array("errorLabels").into_iter().flatten();
    labels.filter_map(|label| label.value().as_str().map(ToOwned::to_owned)).collect()
}

/// After the handler: add a write concern error, as configured.
#[must_use]
pub fn after(op: &Op<'_>, mut reply: Reply) -> Reply {
    if !op.router.fail_points().armed() || !reply.is_ok() {
        return reply;
    }
    let Some(data) = op.router.fail_points().fail_command(op, Moment::After) else { return reply };
    let data = data.as_doc();
    let mut fields = DocBuf::new();
    if let Some(error) = data.get_doc("writeConcernError") {
        fields.append("writeConcernError", error);
    }
    let labels = labels(data);
    if !labels.is_empty() {
        fields.write(|w| w.array("errorLabels", &labels, |w, index, label| w.put(index, label)));
    }
    reply.append(|out| out.extend_from_slice(fields.as_doc().elements()));
    reply
}

/// `configureFailPoint`: the answer tells how often the fail point was hit since the process began.
pub async fn configure(op: &Op<'_>) -> CommandResult<Reply> {
    let body = op.request.body;
    let Some(name) = op.request.target.as_str() else {
        return Err(CommandError::wrong_type("configureFailPoint", op.request.target, "string"));
    };
    let fail_points = op.router.fail_points();
    let mut points = fail_points.points.lock();
    let point = points
        .named(name)
        .ok_or_else(|| CommandError::new(ErrorCode::FailPointSetFailed, format!("{name} not found")))?;
    let mode = parse_mode(body)?;
    let data = match body.get("data") {
        None => Doc::empty(),
        Some(data) => data
            .as_doc()
            .ok_or_else(|| CommandError::new(ErrorCode::TypeMismatch, "'data' must be a JSON object"))?,
    };
    point.mode = mode;
    point.data = DocBuf::from(data);
    let count = point.count;
    let any_on = points.any_on();
    fail_points.armed.store(any_on, Ordering::Relaxed);
    drop(points);
    let mut doc = DocBuf::new();
    doc.append("count", i32::try_from(count).unwrap_or(i32::MAX));
    Ok(Reply::ok_with(doc.as_doc()))
}

/// The server's forms and refusals (seen on 6.0.5).
fn parse_mode(body: Doc<'_>) -> CommandResult<Mode> {
    let Some(mode) = body.get("mode") else {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "When setting a failpoint, you must supply a 'mode'",
        ));
    };
    if let Some(word) = mode.as_str() {
        return match word {
            "off" => Ok(Mode::Off),
            "alwaysOn" => Ok(Mode::AlwaysOn),
            other => Err(CommandError::bad_value(format!("unknown mode: {other}"))),
        };
    }
    let Some(doc) = mode.as_doc() else {
        return Err(CommandError::new(ErrorCode::TypeMismatch, "'mode' must be a string or JSON object"));
    };
    let count = |name: &str| match doc.get(name) {
        None => Ok(None),
        Some(value) => match value.as_i64() {
            Some(n) if n >= 0 => Ok(Some(n)),
            _ => Err(CommandError::bad_value(format!("'{name}' option to 'mode' must be positive"))),
        },
    };
    if let Some(times) = count("times")? {
        return Ok(if times == 0 { Mode::Off } else { Mode::Times(times) });
    }
    if let Some(skip) = count("skip")? {
        return Ok(Mode::Skip(skip));
    }
    match doc.get("activationProbability") {
        Some(Value::Double(p)) if (0.0..=1.0).contains(&p) => Ok(Mode::Probability(p)),
        Some(value) if matches!(value.as_i64(), Some(0 | 1)) => {
            Ok(Mode::Probability(if value.is_truthy() { 1.0 } else { 0.0 }))
        }
        Some(_) => Err(CommandError::bad_value("activationProbability must be between 0.0 and 1.0")),
        None => Err(CommandError::bad_value(
            "'mode' must be one of 'off', 'alwaysOn', '{times:n}', '{skip:n}' or '{activationProbability:p}'",
        )),
    }
}

/// The client's application; of a first hello, the one that it is about to name.
fn application<'a>(op: &'a Op<'_>) -> Option<&'a str> {
    op.client
        .application()
        .or_else(|| op.request.body.get_doc("client")?.get_doc("application")?.get_str("name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(body: &bson::RawDocumentBuf) -> CommandResult<Mode> {
        parse_mode(Doc::new(body.as_bytes()).unwrap())
    }

    #[test]
    fn modes_are_read_as_the_server_reads_them() {
        assert_eq!(mode(&bson::rawdoc! { "mode": "alwaysOn" }).unwrap(), Mode::AlwaysOn);
        assert_eq!(mode(&bson::rawdoc! { "mode": { "times": 2 } }).unwrap(), Mode::Times(2));
        assert_eq!(mode(&bson::rawdoc! { "mode": { "skip": 2.0 } }).unwrap(), Mode::Skip(2));
        for (body, code) in [
            (bson::rawdoc! {}, 20),
            (bson::rawdoc! { "mode": "x" }, 2),
            (bson::rawdoc! { "mode": 5 }, 14),
            (bson::rawdoc! { "mode": { "times": -1 } }, 2),
            (bson::rawdoc! { "mode": { "x": 1 } }, 2),
        ] {
            assert_eq!(mode(&body).unwrap_err().code().0, code, "{body:?}");
        }
    }

    #[test]
    fn times_and_skip_count_down() {
        let mut point = Point { mode: Mode::Times(2), ..Point::default() };
        assert_eq!([point.hit(), point.hit(), point.hit()], [true, true, false]);
        assert_eq!((point.mode, point.count), (Mode::Off, 2));
        let mut point = Point { mode: Mode::Skip(2), ..Point::default() };
        assert_eq!([point.hit(), point.hit(), point.hit()], [false, false, true]);
    }

    #[test]
    fn a_write_concern_error_alone_lets_the_command_run() {
        let moment = |body: &bson::RawDocumentBuf| Moment::of(Doc::new(body.as_bytes()).unwrap());
        assert_eq!(moment(&bson::rawdoc! { "writeConcernError": {} }), Moment::After);
        assert_eq!(moment(&bson::rawdoc! { "writeConcernError": {}, "errorCode": 5 }), Moment::Before);
        assert_eq!(moment(&bson::rawdoc! { "blockConnection": true }), Moment::Before);
    }

    #[test]
    fn codes_that_need_extra_info_get_it_or_say_so() {
        let data = bson::rawdoc! { "errorLabels": ["A"] };
        let data = Doc::new(data.as_bytes()).unwrap();
        assert_eq!(made_error(ErrorCode::StaleConfig, data).code().0, 40671);
        let error = made_error(ErrorCode::HostUnreachable, data);
        assert_eq!((error.code(), error.labels()), (ErrorCode::HostUnreachable, &["A".to_owned()][..]));
    }
}
