//! One connection to the runtime.

use std::{collections::HashMap, sync::Arc, time::Duration};

use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    task::{Id, JoinError, JoinSet},
    time::Instant,
};

use crate::{
    calls::{Answer, Calls, create},
    error::Error,
    messages::RegisterPluginRequest,
    mux::{self, Demux},
    plugin::{Identity, Plugin},
    ttrpc::{self, Decoder, REQUEST, RESPONSE, Raw, Request, Response, code},
};

const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
const REGISTER: u32 = 1;
/// From the connection to the end of the synchronization.
const START: Duration = Duration::from_secs(10);
/// A runtime that reads nothing for so long hangs.
const WRITE: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 256;
const READ: usize = 16 << 10;
const QUEUE: usize = 64;

/// Registers the plugin and answers the runtime until the connection ends.
///
/// # Errors
/// Why it ended, always. The caller connects again after a while.
pub async fn serve<P: Plugin>(
    stream: impl AsyncRead + AsyncWrite + Send,
    identity: &Identity,
    plugin: Arc<P>,
) -> Result<(), Error> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (queue, mut queued) = mpsc::channel::<Vec<u8>>(QUEUE);
    let write = async {
        while let Some(frames) = queued.recv().await {
            tokio::time::timeout(WRITE, writer.write_all(&frames))
                .await
                .map_err(|_| Error::Silent(WRITE))??;
        }
        Ok::<_, Error>(())
    };
    let read = async {
        let mut connection = Connection::new(plugin, queue);
        connection.register(identity).await?;
        let started = Instant::now() + START;
        let mut buffer = vec![0; READ];
        loop {
            tokio::select! {
                read = reader.read(&mut buffer) => match read? {
                    0 => return Err(Error::Closed),
                    length => connection.read(&buffer[..length]).await?,
                },
                Some(ended) = connection.creating.join_next_with_id() => {
                    connection.created(ended).await?;
                }
                () = tokio::time::sleep_until(started), if !connection.calls.synchronized => {
                    return Err(Error::Silent(START));
                }
            }
        }
    };
    tokio::select! {
        ended = write => ended,
        ended = read => ended,
    }
}

struct Connection<P> {
    plugin: Arc<P>,
    calls: Calls<P>,
    queue: mpsc::Sender<Vec<u8>>,
    demux: Demux,
    from_runtime: Decoder,
    answers: Decoder,
    last_stream: u32,
    creating: JoinSet<Response>,
    streams: HashMap<Id, u32>,
}

impl<P: Plugin> Connection<P> {
    fn new(plugin: Arc<P>, queue: mpsc::Sender<Vec<u8>>) -> Self {
        Self {
            calls: Calls::new(Arc::clone(&plugin)),
            plugin,
            queue,
            demux: Demux::default(),
            from_runtime: Decoder::default(),
            answers: Decoder::default(),
            last_stream: 0,
            creating: JoinSet::new(),
            streams: HashMap::new(),
        }
    }

    async fn register(&mut self, identity: &Identity) -> Result<(), Error> {
        let register = RegisterPluginRequest {
            plugin_name: identity.name.to_owned(),
            plugin_idx: identity.index.to_owned(),
        };
        let request = Request {
            service: RUNTIME_SERVICE.to_owned(),
            method: "RegisterPlugin".to_owned(),
            payload: register.encode_to_vec(),
            timeout_nano: i64::try_from(START.as_nanos()).unwrap_or(i64::MAX),
        };
        let message = ttrpc::encode(REGISTER, REQUEST, &request);
        self.send(mux::RUNTIME, &message).await
    }

    async fn read(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some((id, part)) = self.demux.next(&mut bytes)? {
            match id {
                mux::PLUGIN => {
                    self.from_runtime.feed(part);
                    while let Some(message) = self.from_runtime.next()? {
                        self.called(message).await?;
                    }
                }
                mux::RUNTIME => {
                    self.answers.feed(part);
                    while let Some(message) = self.answers.next()? {
                        registered(&message)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn called(&mut self, message: Raw) -> Result<(), Error> {
        if message.kind != REQUEST {
            return Ok(());
        }
        let stream = message.stream;
        if stream.is_multiple_of(2) || stream <= self.last_stream {
            return Err(Error::Protocol(format!("stream {stream} is out of order")));
        }
        self.last_stream = stream;
        let request = Request::decode(&message.body[..])
            .map_err(|e| Error::Protocol(format!("a request cannot be read: {e}")))?;
        match self.calls.call(&request, Instant::now()) {
            Answer::Now(response) => self.respond(stream, &response).await,
            Answer::Create(_) if self.creating.len() >= AT_ONCE => {
                let text = "too many containers are being created";
                let response = Response::error(code::RESOURCE_EXHAUSTED, text);
                self.respond(stream, &response).await
            }
            Answer::Create(request) => {
                let work = create(Arc::clone(&self.plugin), *request);
                let id = self.creating.spawn(work).id();
                self.streams.insert(id, stream);
                Ok(())
            }
        }
    }

    async fn created(&mut self, ended: Result<(Id, Response), JoinError>) -> Result<(), Error> {
        let (id, response) = ended.unwrap_or_else(|error| {
            tracing::error!(%error, "a container's creation failed in the plugin");
            let response = Response::error(code::INTERNAL, "the plugin failed");
            (error.id(), response)
        });
        match self.streams.remove(&id) {
            Some(stream) => self.respond(stream, &response).await,
            None => Ok(()),
        }
    }

    async fn respond(&self, stream: u32, response: &Response) -> Result<(), Error> {
        let message = ttrpc::encode(stream, RESPONSE, response);
        self.send(mux::PLUGIN, &message).await
    }

    async fn send(&self, connection: u32, message: &[u8]) -> Result<(), Error> {
        let frames = mux::frames(connection, message);
        self.queue.send(frames).await.map_err(|_| Error::Closed)
    }
}

fn registered(message: &Raw) -> Result<(), Error> {
    if message.kind != RESPONSE || message.stream != REGISTER {
        return Ok(());
    }
    let response = Response::decode(&message.body[..])
        .map_err(|e| Error::Protocol(format!("an answer cannot be read: {e}")))?;
    match response.status {
        Some(status) if status.code != 0 => Err(Error::Refused(status.message)),
        _ => Ok(()),
    }
}
