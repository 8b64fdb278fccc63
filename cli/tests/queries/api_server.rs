//! An API server that answers from a function of the path.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

pub struct Answer {
    code: u16,
    body: String,
    /// Whether the connection stays open behind the body, as that of a watch.
    open: bool,
}

impl Answer {
    pub fn json(code: u16, value: &Value) -> Self {
        Self::text(code, &value.to_string())
    }

    pub fn text(code: u16, body: &str) -> Self {
        Self {
            code,
            body: body.to_owned(),
            open: false,
        }
    }

    /// A body that never ends.
    pub fn watch(body: &str) -> Self {
        Self {
            open: true,
            ..Self::text(200, body)
        }
    }
}

pub struct ApiServer {
    /// A kubeconfig whose context has this server, and the namespace shop.
    pub kubeconfig: PathBuf,
    closed: Arc<AtomicBool>,
    port: u16,
    _dir: tempfile::TempDir,
}

impl ApiServer {
    pub fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [
                {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
            ],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let closed = Arc::new(AtomicBool::new(false));
        let (answer, stop) = (Arc::new(answer), closed.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (answer, stop) = (answer.clone(), stop.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &*answer, &stop));
            }
        });
        Self {
            kubeconfig,
            closed,
            port,
            _dir: dir,
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Stops listening.
    pub fn close(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the listener, which then stops.
        _ = TcpStream::connect(("127.0.0.1", self.port));
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            std::thread::yield_now();
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.close();
    }
}

/// One request per connection.
fn serve(mut stream: TcpStream, answer: &dyn Fn(&str) -> Answer, stop: &AtomicBool) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = reader.by_ref().lines();
    let Some(Ok(first)) = lines.next() else {
        return;
    };
    let headers = lines.map_while(Result::ok).take_while(|l| !l.is_empty());
    let length = headers
        .filter_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok())
        .sum();
    // A connection that closes before its body is read would be reset.
    _ = reader.read_exact(&mut vec![0; length]);
    let answer = answer(first.split(' ').nth(1).unwrap());
    let length = match answer.open {
        true => String::new(),
        false => format!("content-length: {}\r\n", answer.body.len()),
    };
    let head = format!(
        "HTTP/1.1 {} x\r\ncontent-type: application/json\r\nconnection: close\r\n{length}\r\n",
        answer.code
    );
    _ = stream.write_all(head.as_bytes());
    _ = stream.write_all(answer.body.as_bytes());
    while answer.open && !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(20));
    }
}
