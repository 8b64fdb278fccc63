//! A stand-in for a Service's virtual IP: TCP connections go to the backends in turn, past
//! those that refuse. Dropping the balancer closes its connections.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{JoinHandle, JoinSet},
};

/// A running balancer.
pub struct Balancer {
    /// Where clients connect.
    pub address: SocketAddr,
    backends: Backends,
    cut: Arc<Notify>,
    task: JoinHandle<()>,
}

type Backends = Arc<Mutex<Vec<SocketAddr>>>;

impl Balancer {
    /// Listens on a free port of loopback.
    pub async fn start(backends: Vec<SocketAddr>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let backends = Arc::new(Mutex::new(backends));
        let cut = Arc::new(Notify::new());
        let task = tokio::spawn(serve(listener, Arc::clone(&backends), Arc::clone(&cut)));
        Ok(Self {
            address,
            backends,
            cut,
            task,
        })
    }

    /// The backends of new connections.
    pub fn set_backends(&self, backends: Vec<SocketAddr>) {
        *self.backends.lock().unwrap_or_else(PoisonError::into_inner) = backends;
    }

    /// Closes all open connections.
    pub fn close_connections(&self) {
        self.cut.notify_one();
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, backends: Backends, cut: Arc<Notify>) {
    let mut connections = JoinSet::new();
    let mut turn = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((mut client, _)) = accepted else { continue };
                let mut now = backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if !now.is_empty() {
                    let first = turn % now.len();
                    now.rotate_left(first);
                }
                turn += 1;
                connections.spawn(async move {
                    // Without a backend the client's connection is closed.
                    if let Some(mut backend) = connect(&now).await {
                        _ = client.set_nodelay(true);
                        _ = backend.set_nodelay(true);
                        _ = copy_bidirectional(&mut client, &mut backend).await;
                    }
                });
            }
            Some(_) = connections.join_next() => {}
            () = cut.notified() => connections.abort_all(),
        }
    }
}

async fn connect(backends: &[SocketAddr]) -> Option<TcpStream> {
    for backend in backends {
        if let Ok(stream) = TcpStream::connect(backend).await {
            return Some(stream);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Sends its letter on every connection.
    async fn backend(letter: u8) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                _ = stream.write_all(&[letter]).await;
            }
        });
        (address, task)
    }

    async fn read_letter(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut received = String::new();
        _ = stream.read_to_string(&mut received).await;
        received
    }

    #[tokio::test]
    async fn balancer_takes_backends_in_turn_past_refusing_ones() {
        let ((a, first), (b, _second)) = (backend(b'a').await, backend(b'b').await);
        let balancer = Balancer::start(vec![a, b]).await.unwrap();
        let at = balancer.address;
        assert_eq!(
            [
                read_letter(at).await,
                read_letter(at).await,
                read_letter(at).await
            ],
            ["a", "b", "a"]
        );
        first.abort();
        // Bound and not listening: it refuses, and no other process can take the port.
        let dead = tokio::net::TcpSocket::new_v4().unwrap();
        dead.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        balancer.set_backends(vec![dead.local_addr().unwrap(), b]);
        assert_eq!([read_letter(at).await, read_letter(at).await], ["b", "b"]);
        balancer.set_backends(Vec::new());
        assert_eq!(read_letter(at).await, "");
        // A silent backend: only `close_connections` ends the connection.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        balancer.set_backends(vec![silent.local_addr().unwrap()]);
        let (received, _held) = tokio::join!(read_letter(at), async {
            let held = silent.accept().await;
            balancer.close_connections();
            held
        });
        assert_eq!(received, "");
        drop(balancer);
        let refused = async || TcpStream::connect(at).await.err().map(drop);
        crate::eventually("it is gone", crate::PATIENCE, refused, async || "").await;
    }
}
