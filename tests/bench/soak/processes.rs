//! Our processes, which faults kill and restart, and whose memory is sampled.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use tautline_tests::{
    PATIENCE,
    process::{Process, free_port},
    servers::Server,
};
use tokio::{net::TcpStream, sync::Mutex};

/// One of the bench's own providers, as a process.
pub struct ClockProcess {
    process: Process,
    pub port: u16,
    name: String,
    args: Vec<String>,
    dir: PathBuf,
}

impl ClockProcess {
    /// Its answers go to the file that [`answers`] names.
    pub async fn start(seed: u64, name: char, dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let args = vec![
            "clock".into(),
            format!("--seed={seed}"),
            format!("--name={name}"),
            format!("--listen=127.0.0.1:{port}"),
            format!("--answers={}", answers(dir, name).display()),
        ];
        let name = format!("clock-{name}");
        let process = Process::start(&name, &std::env::current_exe()?, &args, dir)?;
        let started = Self {
            process,
            port,
            name,
            args,
            dir: dir.to_owned(),
        };
        started.listens().await?;
        Ok(started)
    }

    async fn restart(&mut self) -> Result<()> {
        self.process.kill();
        let program = std::env::current_exe()?;
        self.process = Process::start(&self.name, &program, &self.args, &self.dir)?;
        self.listens().await
    }

    async fn listens(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            ensure!(
                Instant::now() < end,
                "{} does not listen\n{}",
                self.name,
                self.process.tail()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

pub fn answers(dir: &Path, name: char) -> PathBuf {
    dir.join(format!("answers-{name}"))
}

pub enum Program {
    Tautline(Server),
    Clock(ClockProcess),
}

impl Program {
    pub fn process(&self) -> &Process {
        match self {
            Self::Tautline(server) => &server.process,
            Self::Clock(clock) => &clock.process,
        }
    }

    pub fn process_mut(&mut self) -> &mut Process {
        match self {
            Self::Tautline(server) => &mut server.process,
            Self::Clock(clock) => &mut clock.process,
        }
    }

    /// Restarts it on its ports, and waits until it is ready.
    pub async fn restart(&mut self) -> Result<()> {
        match self {
            Self::Tautline(server) => server.restart().await,
            Self::Clock(clock) => clock.restart().await,
        }
    }

    pub async fn metric(&self, name: &str) -> f64 {
        match self {
            Self::Tautline(server) => server.metric(name).await,
            Self::Clock(_) => 0.0,
        }
    }
}

pub struct ManagedProcess {
    pub name: &'static str,
    pub port: u16,
    /// 0 where there is none.
    pub admin: u16,
    /// Locked during a fault.
    pub program: Mutex<Program>,
}

impl ManagedProcess {
    pub fn server(name: &'static str, server: Server) -> Self {
        Self {
            name,
            port: server.port,
            admin: server.admin,
            program: Mutex::new(Program::Tautline(server)),
        }
    }

    pub fn clock(name: &'static str, clock: ClockProcess) -> Self {
        Self {
            name,
            port: clock.port,
            admin: 0,
            program: Mutex::new(Program::Clock(clock)),
        }
    }

    pub fn is_tautline(&self) -> bool {
        self.admin != 0
    }
}
