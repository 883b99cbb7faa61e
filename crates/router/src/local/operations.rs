//! What this router does at the moment: `$currentOp` with `localOps`, and `killOp` by number.
//!
//! Each connection keeps the command that it waits for; nothing is shared between connections until somebody asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use dashmap::DashMap;
use document::{DocBuf, DocWriter, Value};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::{Frame, OpMsg};

use crate::client::Client;
use crate::command::{Op, table};

/// The command of a connection.
#[derive(Debug)]
struct Running {
    number: i32,
    since: Instant,
    message: Frame,
}

/// The place of a connection's command.
#[derive(Debug, Default)]
pub(crate) struct Place {
    running: Mutex<Option<Running>>,
    killed: Notify,
}

/// Takes the command out of its place when it is over, also when it is given up.
#[derive(Debug)]
pub(crate) struct Occupied<'p>(&'p Place);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() = None;
    }
}

impl Place {
    pub(crate) const fn new() -> Self {
        Self { running: Mutex::new(None), killed: Notify::const_new() }
    }

    /// A command begins.
    pub(crate) fn occupy(&self, number: i32, message: Frame) -> Occupied<'_> {
        *self.running.lock() = Some(Running { number, since: Instant::now(), message });
        Occupied(self)
    }

    /// Waits until the command is killed.
    pub(crate) fn killed(&self) -> tokio::sync::futures::Notified<'_> {
        self.killed.notified()
    }

    fn kill(&self, number: i32) {
        if self.running.lock().as_ref().is_some_and(|running| running.number == number) {
            self.killed.notify_waiters();
        }
    }
}

/// The connections of this router, and the numbers of their commands.
#[derive(Debug, Default)]
pub struct Operations {
    clients: DashMap<i64, Arc<Client>, foldhash::fast::RandomState>,
    last: AtomicI32,
}

impl Operations {
    /// A client connected.
    pub fn connected(&self, client: &Arc<Client>) {
        self.clients.insert(client.id(), Arc::clone(client));
    }

    /// It left.
    pub fn disconnected(&self, client: &Client) {
        self.clients.remove(&client.id());
        client.leave();
    }

    /// A number for a command.
    pub(crate) fn next(&self) -> i32 {
        // Clients take them for positive.
        self.last.fetch_add(1, Ordering::Relaxed) & i32::MAX
    }

    /// Kills a command, if it is still there.
    pub(crate) fn kill(&self, number: i32) {
        for client in &self.clients {
            client.place().kill(number);
        }
    }

    /// One document a command.
    pub(crate) fn list(&self, op: &Op<'_>) -> Vec<DocBuf> {
        let mut clients: Vec<Arc<Client>> = self.clients.iter().map(|client| Arc::clone(&client)).collect();
        clients.sort_by_key(|client| client.id());
        clients.iter().filter_map(|client| shown(op, client)).collect()
    }
}

/// What is told of a client's command. `None` when it waits for none, or for one that is no command.
fn shown(op: &Op<'_>, client: &Client) -> Option<DocBuf> {
    let (number, since, message) = {
        let running = client.place().running.lock();
        let running = running.as_ref()?;
        (running.number, running.since, running.message.clone())
    };
    let message = OpMsg::parse(message).ok()?;
    let body = message.body();
    let name = body.first()?.name();
    let db = body.get_str("$db").unwrap_or_default();
    let elapsed = since.elapsed();
    let mut doc = DocBuf::new();
    doc.write(|w| {
        w.put("type", "op");
        w.put("host", op.router.settings().host.as_str());
        w.put("desc", format!("conn{}", client.id()).as_str());
        w.put("connectionId", client.id());
        w.put("client", client.address().as_str());
        if let Some(application) = client.application() {
            w.put("appName", application);
        }
        if let Some(metadata) = client.metadata() {
            w.put("clientMetadata", metadata);
        }
        w.put("active", true);
        w.put("opid", number);
        if let Some(session) = body.get_doc("lsid") {
            w.put("lsid", session);
        }
        w.put("secs_running", i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX));
        w.put("microsecs_running", i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX));
        w.put("op", kind(name));
        put_namespace(w, db, name, body.first().map(document::Field::value));
        w.put("command", body);
        w.put("numYields", 0);
    });
    Some(doc)
}

fn put_namespace(w: &mut DocWriter<'_>, db: &str, name: &str, target: Option<Value<'_>>) {
    let reads_none = matches!(name, "aggregate") && target.is_some_and(Value::is_number);
    let collection = match target.and_then(Value::as_str) {
        Some(collection) => collection,
        None if reads_none => "$cmd.aggregate",
        None => "$cmd",
    };
    w.put("ns", format!("{db}.{collection}").as_str());
}

/// The kind of operation, as servers name it.
fn kind(name: &str) -> &'static str {
    match table::find(name).map(|command| command.name) {
        Some("find") => "query",
        Some("getMore") => "getmore",
        Some("insert") => "insert",
        Some("update") => "update",
        Some("delete") => "remove",
        _ => "command",
    }
}
