//! The connections to one server.
//!
//! A checkout takes the connection that was given back last, without awaiting; when there is none it joins a queue, and
//! whatever comes free first, returned or new, goes to the queue's head. New connections are made by at most
//! `max_connecting` tasks at a time, however many wait. A failed one fails all who wait with its cause, and tells the
//! set: the next caller does not try the dead member again.
//!
//! Cost: select, checkout, exchange and return of a ping took 8.8-12.8 µs of CPU an operation (16 callers, mongod 6.0.5,
//! five rounds on a shared machine), a bare loop of write and read on 16 sockets of its own 8.8-13.8.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::Reply;

use crate::connection::Connection;
use crate::error::TopologyError;
use crate::hello::Purpose;
use crate::options::PoolOptions;
use crate::server::Server;

type Waiter = oneshot::Sender<Result<PooledConn, TopologyError>>;

/// The pool's numbers at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Connections that callers hold.
    pub in_use: usize,
    /// Connections that wait for a caller.
    pub idle: usize,
    /// Connections being made.
    pub connecting: usize,
    /// Callers that wait for a connection.
    pub waiting: usize,
    /// Connections made since the start.
    pub created: u64,
    /// How often the pool was emptied by a failure.
    pub cleared: u64,
}

/// What a caller meets at the door.
enum Entry {
    Now(Box<Connection>),
    Queued { receiver: oneshot::Receiver<Result<PooledConn, TopologyError>>, booked: bool },
    Closed,
}

#[derive(Debug)]
pub(crate) struct Pool {
    options: PoolOptions,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    generation: u64,
    /// The last one is the one used last.
    #[expect(clippy::vec_box, reason = "a connection moves twice in each operation, and is large")]
    idle: Vec<Box<Connection>>,
    in_use: usize,
    connecting: usize,
    waiters: VecDeque<Waiter>,
    closed: bool,
    created: u64,
    cleared: u64,
    last_demand: Instant,
}

impl State {
    fn total(&self) -> usize {
        self.in_use + self.idle.len() + self.connecting
    }

    /// Books one more connection to be made, if `wanted` asks for it and the limits allow it.
    fn book(&mut self, options: &PoolOptions, wanted: usize) -> bool {
        let allowed = !self.closed
            && self.connecting < wanted.min(options.max_connecting)
            && self.total() < options.max_size;
        if allowed {
            self.connecting += 1;
        }
        allowed
    }

    /// The first caller that still waits.
    fn next_waiter(&mut self) -> Option<Waiter> {
        while let Some(waiter) = self.waiters.pop_front() {
            if !waiter.is_closed() {
                return Some(waiter);
            }
        }
        None
    }
}

impl Pool {
    pub(crate) fn new(options: PoolOptions) -> Pool {
        Pool {
            options,
            state: Mutex::new(State {
                generation: 0,
                idle: Vec::new(),
                in_use: 0,
                connecting: 0,
                waiters: VecDeque::new(),
                closed: false,
                created: 0,
                cleared: 0,
                last_demand: Instant::now(),
            }),
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        let state = self.state.lock();
        PoolStats {
            in_use: state.in_use,
            idle: state.idle.len(),
            connecting: state.connecting,
            waiting: state.waiters.iter().filter(|waiter| !waiter.is_closed()).count(),
            created: state.created,
            cleared: state.cleared,
        }
    }

    /// A connection, at once or from the queue. Cancel-safe: a caller that goes away gives its place up.
    pub(crate) async fn checkout(
        &self,
        server: &Arc<Server>,
        deadline: Option<Instant>,
    ) -> Result<PooledConn, TopologyError> {
        let receiver = match self.pop_or_queue() {
            Entry::Now(connection) => {
                return Ok(PooledConn { connection: Some(connection), server: Arc::clone(server) });
            }
            Entry::Closed => return Err(TopologyError::PoolClosed { address: server.address().clone() }),
            Entry::Queued { receiver, booked } => {
                if booked {
                    server.spawn(connect_for_waiters(Arc::clone(server)));
                }
                receiver
            }
        };
        let limit = Instant::now() + self.options.wait_timeout;
        let until = deadline.map_or(limit, |deadline| deadline.min(limit));
        match tokio::time::timeout_at(until, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(TopologyError::PoolClosed { address: server.address().clone() }),
            Err(_) if deadline.is_some_and(|deadline| deadline <= limit) => {
                Err(TopologyError::DeadlineExceeded)
            }
            Err(_) => Err(TopologyError::PoolTimeout { address: server.address().clone() }),
        }
    }

    /// A live connection that waits here, else a place in the queue.
    fn pop_or_queue(&self) -> Entry {
        // Declared before the lock, so that sockets are closed after it is free.
        let mut dead = Vec::new();
        let mut state = self.state.lock();
        if state.closed {
            return Entry::Closed;
        }
        while let Some(connection) = state.idle.pop() {
            if connection.is_alive() {
                state.in_use += 1;
                return Entry::Now(connection);
            }
            dead.push(connection);
        }
        while state.waiters.front().is_some_and(Waiter::is_closed) {
            state.waiters.pop_front();
        }
        let (sender, receiver) = oneshot::channel();
        state.waiters.push_back(sender);
        let wanted = state.waiters.len();
        let booked = state.book(&self.options, wanted);
        Entry::Queued { receiver, booked }
    }

    /// A caller is done with a connection.
    fn give_back(&self, server: &Arc<Server>, mut connection: Box<Connection>) {
        let keep = connection.is_clean();
        if keep {
            connection.rest();
        }
        loop {
            let mut state = self.state.lock();
            if !keep || state.closed || connection.generation != state.generation {
                state.in_use = state.in_use.saturating_sub(1);
                let wanted = state.waiters.len();
                let book = state.book(&self.options, wanted);
                drop(state);
                drop(connection);
                if book {
                    server.spawn(connect_for_waiters(Arc::clone(server)));
                }
                return;
            }
            let Some(waiter) = state.next_waiter() else {
                state.in_use = state.in_use.saturating_sub(1);
                state.idle.push(connection);
                return;
            };
            drop(state);
            let handed = PooledConn { connection: Some(connection), server: Arc::clone(server) };
            match waiter.send(Ok(handed)) {
                Ok(()) => return,
                // The waiter went away in this very moment: the next one.
                Err(Ok(mut refused)) => match refused.connection.take() {
                    Some(back) => connection = back,
                    None => return,
                },
                Err(Err(_)) => return,
            }
        }
    }

    /// Closes all idle connections and dooms those in use. With `only`, nothing happens (and `false` comes back) when
    /// that generation is gone already: its failure is old news.
    pub(crate) fn clear(&self, only: Option<u64>) -> bool {
        let mut state = self.state.lock();
        if only.is_some_and(|generation| generation != state.generation) {
            return false;
        }
        state.generation += 1;
        state.cleared += 1;
        let closed = std::mem::take(&mut state.idle);
        drop(state);
        drop(closed);
        true
    }

    /// No more connections; who waits is told so.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.generation += 1;
        let closed = std::mem::take(&mut state.idle);
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        drop(closed);
        drop(waiters);
    }

    /// Regular care: surplus and old connections go, the minimum is kept, silent ones are asked whether they live.
    pub(crate) fn upkeep(&self, server: &Arc<Server>, usable: bool) {
        let now = Instant::now();
        let mut closed = Vec::new();
        let mut asked = Vec::new();
        let mut made = 0;
        {
            let mut state = self.state.lock();
            // The connection used last is the last one of the stack.
            if let Some(last) = state.idle.last().map(|connection| connection.idle_since) {
                state.last_demand = state.last_demand.max(last);
            }
            let unused = now.saturating_duration_since(state.last_demand) >= self.options.host_timeout
                && state.in_use == 0;
            let minimum = if unused { 0 } else { self.options.min_size };
            let mut total = state.total();
            let mut kept = Vec::with_capacity(state.idle.len());
            for connection in std::mem::take(&mut state.idle) {
                let age = now.saturating_duration_since(connection.idle_since);
                if !unused && age < self.options.refresh_requirement {
                    kept.push(connection);
                } else if total > minimum || !connection.is_alive() {
                    total -= 1;
                    closed.push(connection);
                } else {
                    state.in_use += 1;
                    asked.push(PooledConn { connection: Some(connection), server: Arc::clone(server) });
                }
            }
            state.idle = kept;
            if usable {
                while state.total() < minimum && state.book(&self.options, minimum) {
                    made += 1;
                }
            }
        }
        drop(closed);
        for connection in asked {
            server.spawn(connection.prove_alive(self.options.refresh_timeout));
        }
        for _ in 0..made {
            server.spawn(connect_for_waiters(Arc::clone(server)));
        }
    }

    /// A booked connection was made.
    fn on_connected(&self, server: &Arc<Server>, generation: u64, mut connection: Connection) {
        connection.generation = generation;
        {
            let mut state = self.state.lock();
            state.connecting = state.connecting.saturating_sub(1);
            state.in_use += 1;
            state.created += 1;
        }
        self.give_back(server, Box::new(connection));
    }

    /// A booked connection could not be made: all who wait are told why.
    fn on_connect_failed(&self, error: &TopologyError) {
        let waiters = {
            let mut state = self.state.lock();
            state.connecting = state.connecting.saturating_sub(1);
            std::mem::take(&mut state.waiters)
        };
        for waiter in waiters {
            // Whoever went away does not want to know.
            drop(waiter.send(Err(error.clone())));
        }
    }

    fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    fn book_another(&self) -> bool {
        let mut state = self.state.lock();
        let wanted = state.waiters.len();
        state.book(&self.options, wanted)
    }
}

/// Makes booked connections, one after the other, as long as somebody waits.
async fn connect_for_waiters(server: Arc<Server>) {
    let pool = server.pool();
    loop {
        let generation = pool.generation();
        match server.connect(Purpose::Pool).await {
            Ok(connection) => pool.on_connected(&server, generation, connection),
            Err(error) => {
                // First the set, so that who is told now does not choose this member again.
                server.failed(generation, &error);
                pool.on_connect_failed(&error);
                return;
            }
        }
        if !pool.book_another() {
            return;
        }
    }
}

/// A connection on loan. Dropped clean, it goes back to its pool; dropped in mid-exchange, it is closed.
#[derive(Debug)]
pub struct PooledConn {
    connection: Option<Box<Connection>>,
    server: Arc<Server>,
}

impl PooledConn {
    /// The server at the other end.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Sends one whole OP_MSG (its requestId is set here) and reads the answer.
    ///
    /// Not cancel-safe: a dropped exchange leaves the connection unusable, and it is closed.
    pub async fn exchange(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<Reply, TopologyError> {
        self.send(request, deadline).await?;
        self.recv(deadline).await
    }

    /// Sends one whole OP_MSG whose answer [`PooledConn::recv`] reads. Not cancel-safe, as [`PooledConn::exchange`].
    pub async fn send(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<(), TopologyError> {
        let result = self.connection()?.send(request, deadline).await;
        self.watch(result)
    }

    /// Reads the answer to the last [`PooledConn::send`], or the next one after an answer with moreToCome. Not
    /// cancel-safe, as [`PooledConn::exchange`].
    pub async fn recv(&mut self, deadline: Option<Instant>) -> Result<Reply, TopologyError> {
        let result = self.connection()?.recv(deadline).await;
        self.watch(result)
    }

    /// Sends one whole OP_MSG in which the caller has set the moreToCome flag: no answer comes. Not cancel-safe, as
    /// [`PooledConn::exchange`].
    pub async fn send_no_reply(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<(), TopologyError> {
        let result = self.connection()?.send_no_reply(request, deadline).await;
        self.watch(result)
    }

    fn connection(&mut self) -> Result<&mut Connection, TopologyError> {
        let address = self.server.address();
        match &mut self.connection {
            Some(connection) => Ok(connection),
            None => Err(TopologyError::PoolClosed { address: address.clone() }),
        }
    }

    /// Tells the set when the server, not the caller's deadline, ended the exchange.
    fn watch<T>(&self, result: Result<T, TopologyError>) -> Result<T, TopologyError> {
        if let (Err(error), Some(connection)) = (&result, &self.connection)
            && error.is_network()
        {
            self.server.failed(connection.generation, error);
        }
        result
    }

    /// One round trip within `timeout`; a connection that does not answer is closed by its drop.
    async fn prove_alive(mut self, timeout: std::time::Duration) {
        let mut request = BytesMut::new();
        if crate::hello::write_hello(&mut request, None).is_ok() {
            let deadline = Instant::now() + timeout;
            if let Err(error) = self.exchange(&mut request, Some(deadline)).await {
                tracing::debug!(server = %self.server.address(), %error, "an idle connection is dead");
            }
        }
    }
}

impl Drop for PooledConn {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.server.pool().give_back(&self.server, connection);
        }
    }
}
