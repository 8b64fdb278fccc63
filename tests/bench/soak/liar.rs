//! A proxy in front of gpu-slice that changes what its streams of costs say: which messages are
//! contained in the costs (`through`), and when.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use futures::{FutureExt, Stream, StreamExt, stream};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::{
    Request,
    body::{Body, Bytes, Frame, Incoming},
    client::conn::http2 as client,
    server::conn::http2 as server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use tautline_proto::ruleprovider::{CostUpdate, CostWatch, QuestionCosts};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// Time that each message of a stream is held back.
const LATE: Duration = Duration::from_millis(300);
/// A gRPC message begins with a flag and its length.
const HEAD_BYTES: usize = 5;

/// What the streams say of the messages that the provider has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Through {
    #[default]
    True,
    Late,
    /// By turns a number that was never sent, one from long ago, and the last one while the costs
    /// that contain it are held back.
    Wrong,
    /// Costs come, and no number.
    Never,
}

#[derive(Clone, Default)]
struct Mode {
    through: Arc<Mutex<Through>>,
    /// The number of changed messages.
    told: Arc<AtomicU64>,
}

pub struct Liar {
    pub address: SocketAddr,
    mode: Mode,
    task: JoinHandle<()>,
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Liar {
    pub async fn start(backend: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mode = Mode::default();
        let task = tokio::spawn(serve(listener, backend, mode.clone()));
        Ok(Self {
            address,
            mode,
            task,
        })
    }

    pub fn tell(&self, through: Through) {
        *self.mode.through.lock() = through;
    }

    /// The number of messages that were not passed on as they were.
    pub fn told(&self) -> u64 {
        self.mode.told.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, backend: SocketAddr, mode: Mode) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(connection(stream, backend, mode.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Ends with either side's connection.
async fn connection(from: TcpStream, backend: SocketAddr, mode: Mode) -> Result<()> {
    let to = TcpStream::connect(backend).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let (sender, to) = client::handshake(TokioExecutor::new(), TokioIo::new(to)).await?;
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut sender, mode) = (sender.clone(), mode.clone());
        async move {
            let is_stream = request.uri().path().ends_with("/WatchCosts");
            let last = Arc::new(AtomicU64::new(0));
            let seen = Arc::clone(&last);
            let request = request.map(|body| read_numbers(body, is_stream, seen).boxed_unsync());
            let response = sender.send_request(request).await?;
            Ok::<_, hyper::Error>(response.map(|body| match is_stream {
                true => changed(body, mode, last).boxed_unsync(),
                false => body.boxed_unsync(),
            }))
        }
    });
    let served = server::Builder::new(TokioExecutor::new());
    tokio::select! {
        ended = served.serve_connection(TokioIo::new(from), service) => ended?,
        ended = to => ended?,
    }
    Ok(())
}

/// Notes the number of the last message of a request.
fn read_numbers(
    body: Incoming,
    is_stream: bool,
    last: Arc<AtomicU64>,
) -> impl Body<Data = Bytes, Error = hyper::Error> {
    let mut messages = Messages::default();
    body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref().filter(|_| is_stream) {
            for message in messages.read(data) {
                if let Ok(message) = CostWatch::decode(message) {
                    last.fetch_max(message.sequence, Ordering::Relaxed);
                }
            }
        }
        frame
    })
}

fn changed(
    body: Incoming,
    mode: Mode,
    last: Arc<AtomicU64>,
) -> impl Body<Data = Bytes, Error = hyper::Error> {
    let (mut messages, mut held) = (Messages::default(), Vec::new());
    let frames = BodyStream::new(body).flat_map(move |frame| {
        let frames: Vec<Result<Frame<Bytes>, hyper::Error>> = match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                let updates = messages.read(&data).into_iter();
                let told = updates.map(|bytes| tell(bytes, &mode, &last, &mut held));
                told.map(|bytes| Ok(Frame::data(bytes))).collect()
            }
            Ok(Err(trailers)) => vec![Ok(trailers)],
            Err(error) => vec![Err(error)],
        };
        late(frames, *mode.through.lock() == Through::Late)
    });
    StreamBody::new(frames)
}

fn late<T>(frames: Vec<T>, is_late: bool) -> impl Stream<Item = T> {
    let wait = if is_late { LATE } else { Duration::ZERO };
    let frames = tokio::time::sleep(wait).map(|()| stream::iter(frames));
    frames.flatten_stream()
}

/// A message of the provider, as it is told.
fn tell(bytes: Bytes, mode: &Mode, last: &AtomicU64, held: &mut Vec<QuestionCosts>) -> Bytes {
    let through = *mode.through.lock();
    let Ok(mut update) = CostUpdate::decode(bytes.clone()) else {
        return framed(&bytes);
    };
    match through {
        Through::True | Through::Late => {
            if through == Through::Late {
                mode.told.fetch_add(1, Ordering::Relaxed);
            }
            held.append(&mut update.costs);
            update.costs = std::mem::take(held);
            return framed(&update.encode_to_vec());
        }
        Through::Never => update.through = 0,
        Through::Wrong => {
            let sent = last.load(Ordering::Relaxed);
            match mode.told.load(Ordering::Relaxed) % 3 {
                0 => update.through = sent + 1000,
                1 => update.through = 1,
                _ => {
                    update.through = sent;
                    std::mem::swap(&mut update.costs, held);
                }
            }
        }
    }
    mode.told.fetch_add(1, Ordering::Relaxed);
    framed(&update.encode_to_vec())
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let head = [&[0][..], &length.to_be_bytes()].concat();
    [&head[..], message].concat().into()
}

/// The messages of a gRPC body.
#[derive(Default)]
struct Messages(Vec<u8>);

impl Messages {
    fn read(&mut self, data: &[u8]) -> Vec<Bytes> {
        self.0.extend_from_slice(data);
        let mut read = Vec::new();
        while let Some(head) = self.0.first_chunk::<HEAD_BYTES>() {
            let [_, length @ ..] = *head;
            let end = HEAD_BYTES + u32::from_be_bytes(length) as usize;
            if self.0.len() < end {
                break;
            }
            let rest = self.0.split_off(end);
            let message = std::mem::replace(&mut self.0, rest);
            read.push(message[HEAD_BYTES..].to_vec().into());
        }
        read
    }
}
