//! Sends commands to a card's MPS control daemon. The daemon's own program, started without
//! arguments, reads them from standard input and passes them on through the pipe directory.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::process::Command;

use super::files::{log_dir, pipe_dir};
use crate::limits::driver_root::{DriverError, DriverRoot, output, run};

const PROGRAM: &str = "nvidia-cuda-mps-control";

/// An MPS server, which holds the CUDA contexts of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// The process ID of the server.
    pub pid: u32,
    /// The process IDs of its clients.
    pub clients: Vec<u32>,
}

/// The control daemon of one card.
#[derive(Clone, Debug)]
pub(super) struct Control {
    driver: DriverRoot,
    card: String,
    /// The directory by which clients find the daemon.
    pub pipe: PathBuf,
    pub log: PathBuf,
    deadline: Duration,
}

impl Control {
    /// Creates the control of the card with this UUID; each command must be answered within
    /// `deadline`.
    pub fn new(driver: DriverRoot, run_dir: &Path, card: &str, deadline: Duration) -> Self {
        Self {
            driver,
            card: card.to_owned(),
            pipe: pipe_dir(run_dir, card),
            log: log_dir(run_dir, card),
            deadline,
        }
    }

    /// Returns the servers and their clients.
    ///
    /// # Errors
    /// The daemon does not run or does not answer.
    pub async fn servers(&self) -> Result<Vec<Server>, DriverError> {
        let mut servers = Vec::new();
        for pid in pids(&self.send("get_server_list").await?) {
            // A server that ended meanwhile has no clients.
            let clients = self.send(&format!("get_client_list {pid}")).await;
            let clients = clients.map(|text| pids(&text)).unwrap_or_default();
            servers.push(Server { pid, clients });
        }
        Ok(servers)
    }

    /// Sets the limits of clients that set no limits; a client can lower these limits, but not
    /// raise them.
    pub async fn set_defaults(
        &self,
        percent: u16,
        memory_mib: Option<u64>,
    ) -> Result<(), DriverError> {
        let command = format!("set_default_active_thread_percentage {percent}");
        self.send(&command).await?;
        if let Some(mib) = memory_mib {
            // The daemon sees only one card, whose ordinal is therefore 0.
            let command = format!("set_default_device_pinned_mem_limit 0 {mib}M");
            self.send(&command).await?;
        }
        Ok(())
    }

    /// Ends the daemon and its servers.
    pub async fn quit(&self) -> Result<(), DriverError> {
        self.send("quit").await.map(drop)
    }

    /// Returns the command that runs the daemon in the foreground, with the flag for clients of
    /// several users if there is one.
    pub fn daemon(&self, multi_user: Option<&str>) -> Result<Command, DriverError> {
        let mut command = self.command()?;
        command.env("CUDA_VISIBLE_DEVICES", &self.card);
        command.arg("-f").args(multi_user);
        Ok(command)
    }

    /// Returns the flag by which one server serves all users, as the program's help spells it;
    /// `None` if the program does not have it.
    pub async fn multi_user_flag(&self) -> Result<Option<String>, DriverError> {
        let mut command = self.command()?;
        command.arg("-h");
        let output = output(PROGRAM, command, "", self.deadline).await?;
        let texts = [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t));
        Ok(texts.iter().find_map(|text| multi_user_flag(text)))
    }

    async fn send(&self, line: &str) -> Result<String, DriverError> {
        let name = format!("{PROGRAM} ({line}) of card {}", self.card);
        run(&name, self.command()?, &format!("{line}\n"), self.deadline).await
    }

    fn command(&self) -> Result<Command, DriverError> {
        let mut command = self.driver.command(PROGRAM)?;
        command.env("CUDA_MPS_PIPE_DIRECTORY", &self.pipe);
        command.env("CUDA_MPS_LOG_DIRECTORY", &self.log);
        Ok(command)
    }
}

/// Returns the process IDs, from the lines that are numbers; the program also reports problems on
/// standard output.
fn pids(text: &str) -> Vec<u32> {
    let lines = text.lines();
    lines.filter_map(|line| line.trim().parse().ok()).collect()
}

fn multi_user_flag(help: &str) -> Option<String> {
    let mut words = help.split(|c: char| c.is_whitespace() || "[](){}<>|,;:=\"'".contains(c));
    let flag = words.find(|word| word.starts_with('-') && word.ends_with("multiuser-server"));
    flag.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multi_user_flag_is_taken_from_the_help() {
        let flag = |help| multi_user_flag(help);
        assert_eq!(
            flag("usage: x [-d|-f] [-multiuser-server]").as_deref(),
            Some("-multiuser-server")
        );
        assert_eq!(
            flag(" -M, --multiuser-server: one").as_deref(),
            Some("--multiuser-server")
        );
        assert_eq!(flag("usage: x [-d | -f]"), None);
        assert_eq!(flag("no multiuser-server here"), None);
    }

    #[test]
    fn pids_skip_other_lines() {
        assert_eq!(pids("12\n 345 \n"), [12, 345]);
        assert_eq!(pids("Server 12 not found\n7"), [7]);
        assert_eq!(pids(""), [0; 0]);
    }
}
