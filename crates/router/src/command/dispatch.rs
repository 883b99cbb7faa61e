//! The checks that every command passes, in mongos's order, and the call of its handler.

use std::time::Instant;

use document::Doc;

use super::{Command, Op, Status, read_concern, table};
use crate::Router;
use crate::client::Client;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::local::{asked, fail_point, slow_log};
use crate::reply::Reply;
use crate::request::Request;
use crate::session::SessionId;
use crate::transaction;

/// What becomes of a command.
#[derive(Debug)]
pub enum Answer {
    /// This reply (an error is a reply too).
    Reply(Reply),
    /// A closed connection: for a fail point, or as the answer of `shutdown`.
    Close,
}

/// Runs one command to its reply.
pub async fn run(router: &Router, client: &Client, request: CommandResult<Request<'_>>) -> Answer {
    let checked = request.and_then(|request| Ok((checked(router, &request)?, request)));
    let ((number, command), request) = match checked {
        Ok(checked) => checked,
        Err(error) => return Answer::Reply(Reply::error(&error)),
    };
    if request.generic.help {
        return Answer::Reply(help(command));
    }
    router.stats().command_started(number, command);
    let begun = Instant::now();
    let mut op = Op::new(router, client, request, command);
    let (result, asked) = asked::watch(execute(&mut op)).await;
    let Some(result) = result else { return Answer::Close };
    let reply = result.unwrap_or_else(|error| Reply::error(&error.cloaked()));
    router.stats().command_ended(number, command, &reply, &asked);
    slow_log::ended(&op, &reply, begun.elapsed(), &asked);
    if command.ends_connection && reply.is_ok() {
        return Answer::Close;
    }
    Answer::Reply(fail_point::after(&op, reply))
}

/// The command's work; `None` when a fail point closes the connection.
async fn execute(op: &mut Op<'_>) -> Option<CommandResult<Reply>> {
    match fail_point::before(op).await {
        Ok(()) if op.request.in_transaction() => Some(transaction::run(op).await),
        Ok(()) => Some((op.command.handler)(op).await),
        Err(fail_point::Failure::Error(error)) => Some(Ok(Reply::error(&error))),
        Err(fail_point::Failure::Close) => None,
    }
}

/// `{<command>: ..., help: true}` says what the command is and does not run it: a success in mongos.
fn help(command: &Command) -> Reply {
    let mut doc = document::DocBuf::new();
    doc.append("help", format!("help for: {}", command.name).as_str());
    Reply::ok_with(doc.as_doc())
}

/// Finds the row and makes the checks that need no other.
fn checked(router: &Router, request: &Request<'_>) -> CommandResult<(usize, &'static Command)> {
    let (number, command) = table::find_numbered(request.name)
        .filter(|(_, command)| !command.test_only || router.parameters().test_commands())
        .ok_or_else(|| {
            router.stats().command_unknown();
            CommandError::new(ErrorCode::CommandNotFound, format!("no such cmd: {}", request.name))
        })?;
    check_database(command, request.db)?;
    let generic = &request.generic;
    if let Some(cluster_time) = generic.cluster_time {
        router.clock().observe_client(cluster_time)?;
    }
    check_api(router, command, request)?;
    check_session(command, request)?;
    // Every command's is read, whoever needs it (seen on 6.0.5).
    request.read_preference()?;
    read_concern::check(command, request)?;
    check_write_concern(command, request)?;
    // Commands that need no authentication attach no session (6.0).
    if !command.before_auth
        && let Some(session) = generic.lsid.and_then(SessionId::from_lsid)
    {
        router.sessions().seen(session)?;
    }
    Ok((number, command))
}

fn check_database(command: &Command, db: &str) -> CommandResult<()> {
    let bad = |c: char| matches!(c, '.' | '$' | '/' | '\\' | ' ' | '"' | '\0');
    if db != "$external" && (db.is_empty() || db.len() >= 64 || db.contains(bad)) {
        return Err(CommandError::new(ErrorCode::InvalidNamespace, format!("Invalid database name: '{db}'")));
    }
    if command.admin_only && db != "admin" {
        return Err(CommandError::new(
            ErrorCode::Unauthorized,
            format!("{} may only be run against the admin database.", command.name),
        ));
    }
    if db == "local" && command.runs_on != super::RunsOn::Router {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "Can't use 'local' database through mongos",
        ));
    }
    Ok(())
}

fn check_api(router: &Router, command: &Command, request: &Request<'_>) -> CommandResult<()> {
    if request.generic.api.version.is_none() && router.parameters().requires_api_version() {
        return Err(CommandError::new(
            ErrorCode(498_870),
            "The apiVersion parameter is required, please configure your MongoClient's API version",
        ));
    }
    if request.generic.api.strict == Some(true) && !command.api_v1 {
        return Err(CommandError::new(
            ErrorCode::APIStrictError,
            format!(
                "Provided apiStrict:true, but the command {} is not in API Version 1. Information on supported \
                 commands and migrations in API Version 1 can be found at https://dochub.mongodb.org/core/manual-versioned-api",
                command.name
            ),
        ));
    }
    Ok(())
}

/// What cannot write takes no write concern (seen on 6.0.5).
fn check_write_concern(command: &Command, request: &Request<'_>) -> CommandResult<()> {
    let never_writes = matches!(
        command.name,
        "find"
            | "getMore"
            | "count"
            | "distinct"
            | "explain"
            | "listCollections"
            | "listIndexes"
            | "listDatabases"
    );
    if never_writes && request.body.contains("writeConcern") {
        return Err(CommandError::invalid_options("Command does not support writeConcern"));
    }
    Ok(())
}

fn check_session(command: &Command, request: &Request<'_>) -> CommandResult<()> {
    let generic = &request.generic;
    if generic.txn_number.is_some() && generic.lsid.is_none() {
        return Err(CommandError::invalid_options(
            "Transaction number requires a session ID to also be specified",
        ));
    }
    if generic.autocommit == Some(true) && generic.txn_number.is_some() {
        return Err(CommandError::invalid_options("Specifying autocommit=true is not allowed."));
    }
    if generic.start_transaction && generic.autocommit.is_none() {
        return Err(CommandError::invalid_options(
            "'startTransaction' field requires 'autocommit' field to also be specified",
        ));
    }
    if generic.autocommit.is_some() {
        if generic.txn_number.is_none() {
            return Err(CommandError::invalid_options(
                "'autocommit' field requires a transaction number to also be specified",
            ));
        }
        return Ok(());
    }
    if generic.txn_number.is_some() && !command.retryable_write {
        return Err(CommandError::new(
            ErrorCode(50768),
            format!(
                "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                 autocommit:false was not provided, and {} is not a retryable write command.",
                command.name
            ),
        ));
    }
    Ok(())
}

/// The handler of rows that are refused.
pub(super) async fn refuse(op: &Op<'_>) -> CommandResult<Reply> {
    let why = match op.command.status {
        Status::Refused(why) => why,
        Status::Works | Status::Partly(_) => "",
    };
    Err(CommandError::new(
        ErrorCode::CommandNotSupported,
        format!("{} is not supported by this router: {why}", op.command.name),
    ))
}

/// The database and the body of a legacy command.
pub(crate) fn legacy_request<'a>(body: Doc<'a>, db: Option<&'a str>) -> CommandResult<Request<'a>> {
    let db = db.ok_or_else(|| {
        CommandError::new(
            ErrorCode(5_739_101),
            "OP_QUERY is no longer supported. The client driver may require an upgrade.",
        )
    })?;
    // Seen on 6.0.5: nothing but the handshake is spoken in the old form.
    match body.first().map(document::Field::name) {
        Some("hello" | "isMaster" | "ismaster") => Request::from_query(body, db),
        name => Err(CommandError::new(
            ErrorCode(352),
            format!(
                "Unsupported OP_QUERY command: {}. The client driver may require an upgrade. For more details see \
                 https://dochub.mongodb.org/core/legacy-opcode-removal",
                name.unwrap_or_default()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_an_answer_and_no_error() {
        let Some(command) = table::find("ping") else { panic!("ping is a command") };
        let reply = help(command);
        assert!(reply.is_ok());
        assert_eq!(reply.body().get_str("help"), Some("help for: ping"));
    }
}
