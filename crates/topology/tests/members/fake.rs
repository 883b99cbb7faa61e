//! A scripted member: speaks enough of the protocol to be monitored, and misbehaves on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::BytesMut;
use document::{Doc, DocBuf, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use topology::{
    ConnectionString, PooledConn, ReplicaSet, ServerAddress, Topology, TopologyError, TopologyOptions,
};
use wire::{Frame, MAX_CLIENT_MESSAGE_BYTES, MsgFlags, OpMsg, OpMsgWriter, Reply, cut_frame};

/// What it says it is, with a number that goes up with each change.
#[derive(Clone, Copy)]
pub(crate) struct Role {
    pub(crate) primary: bool,
    pub(crate) set_name: &'static str,
    pub(crate) wire_version: i32,
    counter: i64,
}

pub(crate) struct Shared {
    pub(crate) address: ServerAddress,
    role: watch::Sender<Role>,
    /// Handshakes of pooled connections wait while this is false.
    gate: watch::Sender<bool>,
    /// New with each [`FakeServer::hang_up`].
    hang_up: watch::Sender<CancellationToken>,
    /// Pooled connections, ever.
    pub(crate) pooled: AtomicUsize,
    pub(crate) shaking: AtomicUsize,
    pub(crate) most_shaking: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) plain_hellos: AtomicUsize,
}

pub(crate) struct FakeServer {
    pub(crate) shared: Arc<Shared>,
    accepting: CancellationToken,
}

impl FakeServer {
    pub(crate) async fn start() -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let role = Role { primary: true, set_name: "rs", wire_version: 17, counter: 1 };
        let shared = Arc::new(Shared {
            address: ServerAddress::new("127.0.0.1", listener.local_addr().unwrap().port()),
            role: watch::Sender::new(role),
            gate: watch::Sender::new(true),
            hang_up: watch::Sender::new(CancellationToken::new()),
            pooled: AtomicUsize::new(0),
            shaking: AtomicUsize::new(0),
            most_shaking: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            plain_hellos: AtomicUsize::new(0),
        });
        let accepting = CancellationToken::new();
        let (server, stop) = (Arc::clone(&shared), accepting.clone());
        tokio::spawn(async move {
            while let Some(Ok((socket, _))) = stop.run_until_cancelled(listener.accept()).await {
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    let hang_up = server.hang_up.borrow().clone();
                    server.open.fetch_add(1, SeqCst);
                    hang_up.run_until_cancelled(serve(socket, &server)).await;
                    server.open.fetch_sub(1, SeqCst);
                });
            }
        });
        FakeServer { shared, accepting }
    }

    /// A set of this server alone.
    pub(crate) fn set(&self) -> ConnectionString {
        ConnectionString { set_name: "rs".into(), hosts: vec![self.shared.address.clone()] }
    }

    pub(crate) fn become_role(&self, change: impl FnOnce(&mut Role)) {
        self.shared.role.send_modify(|role| {
            change(role);
            role.counter += 1;
        });
    }

    pub(crate) fn hold_handshakes(&self, hold: bool) {
        self.shared.gate.send_replace(!hold);
    }

    /// Closes all connections; new ones are welcome.
    pub(crate) fn hang_up(&self) {
        self.shared.hang_up.send_replace(CancellationToken::new()).cancel();
    }

    /// Closes all connections and the door.
    pub(crate) fn stop(&self) {
        self.accepting.cancel();
        self.hang_up();
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve(mut socket: TcpStream, server: &Shared) -> Option<()> {
    let mut buf = BytesMut::new();
    let mut role = server.role.subscribe();
    let mut reply_id = 0;
    loop {
        let request = OpMsg::parse(read(&mut socket, &mut buf).await?).unwrap();
        let body = request.body();
        let mut out = BytesMut::new();
        let mut write = |reply_id: i32, to: i32, flags, doc: &DocBuf| {
            out.clear();
            OpMsgWriter::write(&mut out, reply_id, to, flags, doc.as_doc()).unwrap();
            std::mem::take(&mut out)
        };
        let mut to = request.header().request_id;
        reply_id += 1;
        match body.first()?.name() {
            "hello" if request.exhaust_allowed() => loop {
                tokio::select! {
                    changed = role.changed() => changed.ok()?,
                    // Nothing is said to a stream: it can only end.
                    _ = socket.read_buf(&mut buf) => return None,
                }
                let doc = hello(server, &role.borrow_and_update());
                socket.write_all(&write(reply_id, to, MsgFlags::MORE_TO_COME, &doc)).await.ok()?;
                to = reply_id;
                reply_id += 1;
            },
            "hello" => {
                server.plain_hellos.fetch_add(1, SeqCst);
                if is_pooled(body) {
                    server.pooled.fetch_add(1, SeqCst);
                    server.most_shaking.fetch_max(server.shaking.fetch_add(1, SeqCst) + 1, SeqCst);
                    server.gate.subscribe().wait_for(|open| *open).await.ok()?;
                    // Others that come at the same time are counted with this one.
                    tokio::task::yield_now().await;
                    server.shaking.fetch_sub(1, SeqCst);
                }
                let doc = hello(server, &role.borrow_and_update());
                socket.write_all(&write(reply_id, to, MsgFlags::NONE, &doc)).await.ok()?;
            }
            "mute" => std::future::pending::<()>().await,
            "hangUp" => return None,
            "wrongAnswer" => {
                socket.write_all(&write(reply_id, to + 1, MsgFlags::NONE, &answer(0, 0))).await.ok()?;
            }
            "halfAnswer" => {
                let message = write(reply_id, to, MsgFlags::NONE, &answer(0, 1000));
                socket.write_all(&message[..500]).await.ok()?;
                std::future::pending::<()>().await;
            }
            "twoAnswers" => {
                let mut message = write(reply_id, to, MsgFlags::NONE, &answer(0, 0));
                message.extend_from_slice(&message.clone());
                socket.write_all(&message).await.ok()?;
            }
            _ if request.more_to_come() => {}
            _ => {
                let echo = body.get_i64("n").unwrap();
                let size = usize::try_from(body.get_i64("size").unwrap_or(0)).unwrap();
                let message = write(reply_id, to, MsgFlags::NONE, &answer(echo, size));
                socket.write_all(&message).await.ok()?;
            }
        }
    }
}

async fn read(socket: &mut TcpStream, buf: &mut BytesMut) -> Option<Frame> {
    loop {
        if let Some(frame) = cut_frame(buf, MAX_CLIENT_MESSAGE_BYTES).unwrap() {
            return Some(frame);
        }
        if socket.read_buf(buf).await.ok()? == 0 {
            return None;
        }
    }
}

fn is_pooled(hello: Doc<'_>) -> bool {
    let name = hello.get_doc("client").and_then(|client| client.get_doc("driver")?.get_str("name"));
    name.is_some_and(|name| !name.ends_with("-monitor"))
}

fn hello(server: &Shared, role: &Role) -> DocBuf {
    let mut doc = DocBuf::new();
    doc.write(|w| {
        w.put("isWritablePrimary", role.primary);
        w.put("secondary", !role.primary);
        w.put("setName", role.set_name);
        w.put("setVersion", 1);
        w.value("electionId", Value::ObjectId([1; 12]));
        w.array("hosts", [server.address.as_str()], |w, index, host| w.put(index, host));
        w.put("me", server.address.as_str());
        w.doc("topologyVersion", |w| {
            w.value("processId", Value::ObjectId([7; 12]));
            w.put("counter", role.counter);
        });
        w.put("minWireVersion", 0);
        w.put("maxWireVersion", role.wire_version);
        w.put("ok", 1.0);
    });
    doc
}

fn answer(echo: i64, size: usize) -> DocBuf {
    let mut doc = DocBuf::new();
    doc.append("echo", echo).append("filler", &"x".repeat(size)).append("ok", 1.0);
    doc
}

/// One command as a whole message.
pub(crate) fn command(name: &str, fields: &[(&str, i64)]) -> BytesMut {
    let mut doc = DocBuf::new();
    doc.append(name, 1);
    for (name, value) in fields {
        doc.append(name, *value);
    }
    let mut message = BytesMut::new();
    OpMsgWriter::write(&mut message, 0, 0, MsgFlags::NONE, doc.as_doc()).unwrap();
    message
}

/// Sends a number, fails when anything else comes back.
pub(crate) async fn echo(connection: &mut PooledConn, number: i64) -> Result<Reply, TopologyError> {
    let reply = connection.exchange(&mut command("echo", &[("n", number)]), None).await?;
    assert_eq!(reply.body().get_i64("echo"), Some(number), "the answer to another question");
    Ok(reply)
}

/// A topology with this server's set, and the set once its primary is known.
pub(crate) async fn topology(
    server: &FakeServer,
    change: impl FnOnce(&mut TopologyOptions),
) -> (Topology, Arc<ReplicaSet>) {
    let mut options = TopologyOptions::default();
    options.pool.min_size = 0;
    options.min_heartbeat = Duration::from_millis(20);
    change(&mut options);
    let topology = Topology::new(options);
    let set = topology.add(&server.set()).unwrap();
    (topology, set)
}

/// Waits until it is so; panics after ten seconds.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}
