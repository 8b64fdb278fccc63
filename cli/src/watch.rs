//! Handles `tautline watch`, which follows the compliance of bindings: as a table redrawn in place
//! on a terminal, and as one line per change elsewhere.

pub(crate) mod screen;
mod updates;
mod view;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use tautline_runtime::tasks;
use tokio::{
    sync::mpsc::{self, Receiver},
    time::{Instant, MissedTickBehavior},
};

use crate::{bindings::FilterArgs, cluster::ClusterArgs, fetch, output, scope::ScopeArgs};
use screen::Screen;
use updates::{GuardedBinding, Update};
use view::BindingsView;

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// The time between two redraws for the ages, without updates.
const IDLE_REDRAW_INTERVAL: Duration = Duration::from_secs(1);
const MAX_QUEUED_UPDATES: usize = 1024;

#[derive(clap::Args)]
#[command(
    after_help = "On a terminal the table is redrawn in place, the worst first, until Ctrl-C.\n\
    Elsewhere each change of compliance is a line: TIME NAMESPACE/NAME OLD -> NEW REASON.\n\n\
    Examples:\n  tautline watch -n shop --offer web-near-db\n  tautline watch -A --compliance violation,error\n  tautline watch -A | tee changes.log"
)]
pub(crate) struct Args {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let client = args.cluster.client().await?;
    let scope = args.scope.of(&client);
    let api = scope.api::<GuardedBinding>(&client);
    let mut signal = std::pin::pin!(tasks::shutdown_signal());
    // An error that waiting does not fix ends the command, with its fix.
    tokio::select! {
        checked = fetch::check(&api, &scope) => checked?,
        () = &mut signal => return Ok(ExitCode::SUCCESS),
    }
    let (sender, news) = mpsc::channel(MAX_QUEUED_UPDATES);
    let view = BindingsView::new(scope, args.filter);
    let shown = async {
        if io::stdout().is_terminal() {
            draw_table(view, news).await
        } else {
            print_changes(view, news).await
        }
    };
    tokio::select! {
        () = &mut signal => {}
        () = updates::send_updates(api.clone(), sender) => {}
        ended = shown => match ended {
            // The reader closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            ended => ended?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

async fn draw_table(mut view: BindingsView, mut news: Receiver<Update>) -> io::Result<()> {
    let mut screen = Screen::open(io::stdout())?;
    let mut ticks = tokio::time::interval(REDRAW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drawn: Option<Instant> = None;
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            taken = news.recv_many(&mut batch, MAX_QUEUED_UPDATES) => {
                if taken == 0 {
                    return Ok(());
                }
                for item in batch.drain(..) {
                    view.apply(item, Timestamp::now());
                }
                drawn = None;
            }
            _ = ticks.tick() => {
                if drawn.is_none_or(|at| at.elapsed() >= IDLE_REDRAW_INTERVAL) {
                    let size = screen::size();
                    screen.draw(&view.frame(size, Timestamp::now()), size)?;
                    drawn = Some(Instant::now());
                }
            }
        }
    }
}

async fn print_changes(mut view: BindingsView, mut news: Receiver<Update>) -> io::Result<()> {
    while let Some(item) = news.recv().await {
        let (was_lost, was_ready) = (view.connection_error(), view.ready());
        let changes = view.apply(item, Timestamp::now());
        match view.connection_error() {
            Some(why) if was_lost.as_ref() != Some(&why) => {
                note!("connection lost: {why}; trying again");
            }
            None if was_lost.is_some() => note!("connected again"),
            _ => {}
        }
        if !was_ready && view.ready() {
            note!("{}", view.summary());
        }
        for change in changes {
            output::try_write(&format!("{change}\n"))?;
        }
    }
    Ok(())
}
