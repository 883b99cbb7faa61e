//! Logical sessions: beginning, keeping, ending and killing them.
//!
//! What a router holds for a session are its cursors and its transaction; which sessions were used, it tells the cluster
//! every few minutes ([`crate::session`]). Shards do the same for the sessions that requests name, so that refreshing and
//! ending are passed on to them at once.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::BytesMut;
use document::{Doc, DocBuf, Value, splice};
use futures_util::future::join_all;
use sha2::{Digest, Sha256};
use tokio::time::{Duration, Instant};
use topology::{MemberKind, ReadPreference, ReplicaSet, Server};

use crate::Router;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments;
use crate::error::{CommandError, CommandResult};
use crate::remote::config::internal_request;
use crate::remote::{Retry, Servers};
use crate::reply::Reply;
use crate::session::{ANONYMOUS_DIGEST, SessionId};

const TIMEOUT_MINUTES: i32 = 30;
/// What one host may take to kill sessions (`killSessionsPerHostTimeoutMS`).
const KILL_LIMIT: Duration = Duration::from_secs(60);
/// How the server calls these arguments in its errors (seen on 6.0.5).
const KILL_ALL: &str = "KillAllSessionsCmd.killAllSessions";
const KILL_PATTERN: &str = "KillAllSessionsByPatternCmd.killAllSessionsByPattern";
/// What passing on the end of sessions may take: a lost one ends by its timeout.
const PASS_ON_LIMIT: Duration = Duration::from_secs(15);

/// `startSession`: an id; the session begins with its first use.
pub async fn start_session(_op: &Op<'_>) -> CommandResult<Reply> {
    let mut id: [u8; 16] = rand::random();
    // A UUID of version 4.
    let [.., version, _, variant, _, _, _, _, _, _, _] = &mut id;
    *version = (*version & 0x0f) | 0x40;
    *variant = (*variant & 0x3f) | 0x80;
    let mut doc = DocBuf::new();
    doc.append_doc("id", |w| w.put("id", Value::Binary { subtype: 4, bytes: &id }));
    doc.append("timeoutMinutes", TIMEOUT_MINUTES);
    Ok(Reply::ok_with(doc.as_doc()))
}

/// `refreshSessions`
pub async fn refresh_sessions(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::only(op, &[])?;
    let sessions = read_sessions(op, "refreshSessions.refreshSessions")?;
    for session in &sessions {
        op.router.sessions().seen(*session)?;
    }
    pass_on(op, "refreshSessions", sessions);
    Ok(Reply::ok())
}

/// `endSessions`
pub async fn end_sessions(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::only(op, &[])?;
    let sessions = read_sessions(op, "endSessions.endSessionsFromClient")?;
    let ended: HashSet<SessionId> = sessions.iter().copied().collect();
    // Dropped, they close on their shards in the background.
    drop(op.router.cursors().kill_sessions(|session| ended.contains(session)));
    op.router.abort_transactions_of(|session| ended.contains(session));
    op.router.sessions().end(&sessions);
    pass_on(op, "endSessions", sessions);
    Ok(Reply::ok())
}

/// `refreshLogicalSessionCacheNow`: what the router does every few minutes.
pub async fn refresh_now(op: &Op<'_>) -> CommandResult<Reply> {
    op.router.refresh_sessions().await?;
    Ok(Reply::ok())
}

/// `killSessions`: those that are named, else all of the caller's.
pub async fn kill_sessions(op: &Op<'_>) -> CommandResult<Reply> {
    let sessions = read_sessions(op, "killSessions.killSessions")?;
    let patterns = if sessions.is_empty() {
        vec![Pattern::of_user(*ANONYMOUS_DIGEST)]
    } else {
        sessions.into_iter().map(Pattern::of_session).collect()
    };
    kill(op, &patterns).await
}

/// `killAllSessions`: those of the users that are named, else everybody's.
pub async fn kill_all_sessions(op: &Op<'_>) -> CommandResult<Reply> {
    let mut patterns = Vec::new();
    for user in read_documents(op, KILL_ALL)? {
        let part = |name: &str| {
            user.get_str(name).ok_or_else(|| {
                CommandError::new(
                    ErrorCode(40414),
                    format!("BSON field '{KILL_ALL}.{name}' is missing but a required field"),
                )
            })
        };
        let full_name = format!("{}@{}", part("user")?, part("db")?);
        patterns.push(Pattern::of_user(Sha256::digest(full_name).into()));
    }
    if patterns.is_empty() {
        patterns.push(Pattern::everybody());
    }
    kill(op, &patterns).await
}

/// `killAllSessionsByPattern`: those that match one of the patterns, everybody's when there is none.
pub async fn kill_all_sessions_by_pattern(op: &Op<'_>) -> CommandResult<Reply> {
    let mut patterns = Vec::new();
    for pattern in read_documents(op, KILL_PATTERN)? {
        patterns.push(Pattern::parse(pattern)?);
    }
    if patterns.is_empty() {
        patterns.push(Pattern::everybody());
    }
    kill(op, &patterns).await
}

/// Which sessions: of one id, of one user, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pattern {
    session: Option<SessionId>,
    user: Option<[u8; 32]>,
}

impl Pattern {
    const fn everybody() -> Self {
        Self { session: None, user: None }
    }

    const fn of_session(session: SessionId) -> Self {
        Self { session: Some(session), user: None }
    }

    const fn of_user(user: [u8; 32]) -> Self {
        Self { session: None, user: Some(user) }
    }

    fn parse(doc: Doc<'_>) -> CommandResult<Self> {
        let mut pattern = Self::everybody();
        for field in doc {
            match (field.name(), field.value()) {
                ("lsid", Value::Document(lsid)) => {
                    let Some(uid) = lsid.get("uid") else {
                        return Err(CommandError::new(
                            ErrorCode(40414),
                            format!("BSON field '{KILL_PATTERN}.lsid.uid' is missing but a required field"),
                        ));
                    };
                    let session = SessionId::from_lsid(lsid).ok_or_else(|| {
                        CommandError::bad_value(format!("'{KILL_PATTERN}.lsid.id' is no UUID"))
                    })?;
                    pattern.session = Some(session);
                    pattern.user = Some(digest(uid)?);
                }
                ("uid", uid @ Value::Binary { .. }) => pattern.user = Some(digest(uid)?),
                // Who is impersonated while the sessions are killed: no one is, until authentication is built.
                ("users" | "roles", Value::Array(_)) => {}
                (name @ ("lsid" | "uid" | "users" | "roles"), value) => {
                    let expected = match name {
                        "lsid" => "object",
                        "uid" => "binData",
                        _ => "array",
                    };
                    return Err(CommandError::wrong_type(&format!("{KILL_PATTERN}.{name}"), value, expected));
                }
                (name, _) => {
                    return Err(CommandError::new(
                        ErrorCode(40415),
                        format!("BSON field '{KILL_PATTERN}.{name}' is an unknown field."),
                    ));
                }
            }
        }
        Ok(pattern)
    }

    /// All sessions of this router are of the one user that there is.
    fn matches(&self, session: SessionId) -> bool {
        self.session.is_none_or(|wanted| wanted == session)
            && self.user.is_none_or(|user| user == *ANONYMOUS_DIGEST)
    }

    fn write(&self, out: &mut BytesMut) {
        let put_user = |out: &mut BytesMut, user: &[u8; 32]| {
            splice::put_element(out, 0x05, "uid", &[32, 0, 0, 0, 0]);
            out.extend_from_slice(user);
        };
        match (&self.session, &self.user) {
            (Some(session), user) => {
                let lsid = splice::open_doc(out, "lsid");
                splice::put_element(out, 0x05, "id", &[16, 0, 0, 0, 4]);
                out.extend_from_slice(&session.0);
                put_user(out, user.as_ref().unwrap_or(ANONYMOUS_DIGEST));
                lsid.finish(out);
            }
            (None, Some(user)) => put_user(out, user),
            (None, None) => {}
        }
    }
}

/// A user's digest, whoever it is: patterns may name any user.
fn digest(value: Value<'_>) -> CommandResult<[u8; 32]> {
    let Value::Binary { bytes, .. } = value else {
        return Err(CommandError::wrong_type(&format!("{KILL_PATTERN}.uid"), value, "binData"));
    };
    bytes.try_into().map_err(|_| CommandError::bad_value("Unsupported SHA256Block hash length"))
}

/// Ends the cursors of the sessions here, then everything of them on every member of every shard.
async fn kill(op: &Op<'_>, patterns: &[Pattern]) -> CommandResult<Reply> {
    let router = op.router;
    drop(router.cursors().kill_sessions(|session| patterns.iter().any(|pattern| pattern.matches(*session))));
    router.abort_transactions_of(|session| patterns.iter().any(|pattern| pattern.matches(*session)));
    let request = internal_request(router.servers(), "admin", |out| {
        let array = splice::open_array(out, "killAllSessionsByPattern");
        for (index, pattern) in patterns.iter().enumerate() {
            let item = splice::open_doc(out, &index.to_string());
            pattern.write(out);
            item.finish(out);
        }
        array.finish(out);
    })?;
    let deadline = Some(Instant::now() + KILL_LIMIT);
    let hosts = members_with_data(router).await?;
    let failed = join_all(hosts.iter().map(|(set, server)| {
        let mut request = request.clone();
        async move {
            match router.servers().exchange(set, server, &mut request, deadline).await {
                Ok(answer) if answer.summary.ok => None,
                Ok(_) | Err(_) => Some(server.address().to_string()),
            }
        }
    }))
    .await;
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    if failed.is_empty() {
        return Ok(Reply::ok());
    }
    let mut doc = DocBuf::new();
    doc.write(|w| w.array("failedHosts", &failed, |w, index, host| w.put(index, host)));
    let error = CommandError::new(ErrorCode::HostUnreachable, "Failed to kill on some hosts");
    Err(match doc.as_doc().get("failedHosts") {
        Some(hosts) => error.with_extra("failedHosts", hosts),
        None => error,
    })
}

/// Every member of every shard but arbiters.
async fn members_with_data(router: &Router) -> CommandResult<Vec<(Arc<ReplicaSet>, Arc<Server>)>> {
    let mut members = Vec::new();
    for set in shard_sets(router).await? {
        let description = set.description();
        for (member, server) in description.members().zip(description.servers()) {
            if member.kind != MemberKind::Arbiter {
                members.push((Arc::clone(&set), Arc::clone(server)));
            }
        }
    }
    Ok(members)
}

async fn shard_sets(router: &Router) -> CommandResult<Vec<Arc<ReplicaSet>>> {
    let shards = router
        .registry()
        .list()
        .await
        .map_err(|error| CommandError::new(ErrorCode(error.code()), error.to_string()))?;
    let mut sets = Vec::with_capacity(shards.len());
    for shard in shards.iter() {
        sets.push(router.shard_set(&shard.id).await?);
    }
    Ok(sets)
}

/// Tells the shards' primaries, in the background: a router answers at once, as a mongos does.
fn pass_on(op: &Op<'_>, command: &'static str, sessions: Vec<SessionId>) {
    if sessions.is_empty() {
        return;
    }
    let servers = Arc::clone(op.router.servers());
    // Sets that were never asked cannot know the sessions.
    let config = Arc::clone(servers.config_set());
    let sets = servers.topology().sets().into_iter().filter(move |set| set.name() != config.name());
    for set in sets {
        let servers = Arc::clone(&servers);
        let sessions = sessions.clone();
        op.router.tasks().spawn(async move {
            if let Err(error) = tell(&servers, &set, command, &sessions).await {
                tracing::debug!(set = %set.name(), %error, command, "could not pass on sessions");
            }
        });
    }
}

async fn tell(
    servers: &Servers,
    set: &Arc<ReplicaSet>,
    command: &str,
    sessions: &[SessionId],
) -> CommandResult<()> {
    let mut request = internal_request(servers, "admin", |out| {
        let array = splice::open_array(out, command);
        for (index, session) in sessions.iter().enumerate() {
            let item = splice::open_doc(out, &index.to_string());
            session.write_fields(out);
            item.finish(out);
        }
        array.finish(out);
    })?;
    let deadline = Some(Instant::now() + PASS_ON_LIMIT);
    servers.ask_set(set, &mut request, &ReadPreference::PRIMARY, Retry::Idempotent, deadline).await?;
    Ok(())
}

fn read_documents<'a>(op: &Op<'a>, field: &str) -> CommandResult<Vec<Doc<'a>>> {
    let target = op.request.target;
    let array = target.as_array().ok_or_else(|| CommandError::wrong_type(field, target, "array"))?;
    array
        .into_iter()
        .map(|item| {
            item.value().as_doc().ok_or_else(|| {
                CommandError::wrong_type(&format!("{field}.{}", item.name()), item.value(), "object")
            })
        })
        .collect()
}

fn read_sessions(op: &Op<'_>, field: &str) -> CommandResult<Vec<SessionId>> {
    read_documents(op, field)?.into_iter().map(|lsid| session_id(lsid, field)).collect()
}

/// `{id: <UUID>}`, with the digest of no one at most.
fn session_id(lsid: Doc<'_>, field: &str) -> CommandResult<SessionId> {
    for part in lsid {
        match (part.name(), part.value()) {
            ("id", _) => {}
            ("uid", Value::Binary { bytes, .. }) if bytes == ANONYMOUS_DIGEST => {}
            ("uid", _) => {
                return Err(CommandError::new(
                    ErrorCode::Unauthorized,
                    "Unauthorized to set user digest in LogicalSessionId",
                ));
            }
            (name, _) => {
                return Err(CommandError::new(
                    ErrorCode(40415),
                    format!("BSON field '{field}.{name}' is an unknown field."),
                ));
            }
        }
    }
    let Some(id) = lsid.get("id") else {
        return Err(CommandError::new(
            ErrorCode(40414),
            format!("BSON field '{field}.id' is missing but a required field"),
        ));
    };
    SessionId::from_lsid(lsid).ok_or_else(|| CommandError::wrong_type(&format!("{field}.id"), id, "binData"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(byte: u8) -> bson::Binary {
        bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![byte; 16] }
    }

    fn no_one() -> bson::Binary {
        bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: ANONYMOUS_DIGEST.to_vec() }
    }

    #[test]
    fn patterns_select_by_session_and_user() {
        let parse = |body: &bson::RawDocumentBuf| Pattern::parse(Doc::new(body.as_bytes()).unwrap());
        let one = parse(&bson::rawdoc! { "lsid": { "id": uuid(1), "uid": no_one() } }).unwrap();
        assert!(one.matches(SessionId([1; 16])));
        assert!(!one.matches(SessionId([2; 16])));
        assert!(parse(&bson::rawdoc! {}).unwrap().matches(SessionId([2; 16])));
        let other = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![7; 32] };
        assert!(!parse(&bson::rawdoc! { "uid": other }).unwrap().matches(SessionId([2; 16])));
        assert_eq!(parse(&bson::rawdoc! { "x": 1 }).unwrap_err().code().0, 40415);
        assert_eq!(parse(&bson::rawdoc! { "lsid": { "id": uuid(1) } }).unwrap_err().code().0, 40414);
        assert_eq!(parse(&bson::rawdoc! { "lsid": 1 }).unwrap_err().code(), ErrorCode::TypeMismatch);
    }

    #[test]
    fn a_foreign_digest_is_refused() {
        let other = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![7; 32] };
        let body = bson::rawdoc! { "id": uuid(1), "uid": other };
        let error = session_id(Doc::new(body.as_bytes()).unwrap(), "x").unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unauthorized);
    }
}
