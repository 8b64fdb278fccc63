//! Changes settings of cards with `nvidia-smi`, since NVML has no public call for time slices.

use std::{fmt, str::FromStr, time::Duration};

use super::driver_root::{DriverError, DriverRoot, complaint, output};

const PROGRAM: &str = "nvidia-smi";
/// The time in which the program must end; it takes seconds on a node with many cards without the
/// persistence daemon.
const DEADLINE: Duration = Duration::from_secs(30);

/// The length of a card's time slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timeslice {
    /// The driver's default length.
    #[default]
    Default,
    /// Short time slices.
    Short,
    /// Medium time slices.
    Medium,
    /// Long time slices.
    Long,
}

/// The error for a text that is not a [`Timeslice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time slice {0:?} is unknown; write default, short, medium or long")]
pub struct TimesliceError(String);

impl FromStr for Timeslice {
    type Err = TimesliceError;

    fn from_str(text: &str) -> Result<Self, TimesliceError> {
        match text {
            "default" => Ok(Self::Default),
            "short" => Ok(Self::Short),
            "medium" => Ok(Self::Medium),
            "long" => Ok(Self::Long),
            _ => Err(TimesliceError(text.to_owned())),
        }
    }
}

impl fmt::Display for Timeslice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
        })
    }
}

impl Timeslice {
    fn number(self) -> &'static str {
        match self {
            Self::Default => "0",
            Self::Short => "1",
            Self::Medium => "2",
            Self::Long => "3",
        }
    }
}

/// Sets the length of a card's time slices, which lasts until the driver is loaded again.
///
/// # Errors
/// `nvidia-smi` is missing, hangs or refuses.
pub async fn set_timeslice(
    driver: &DriverRoot,
    card: &str,
    slice: Timeslice,
) -> Result<(), DriverError> {
    let arguments = ["compute-policy", "-i", card, "--set-timeslice"];
    run(driver, &[&arguments[..], &[slice.number()]].concat()).await
}

/// Sets whether only one process may use a card: the MPS server, if it runs. The setting lasts
/// until the driver is loaded again.
///
/// # Errors
/// `nvidia-smi` is missing, hangs or refuses.
pub async fn set_exclusive(
    driver: &DriverRoot,
    card: &str,
    exclusive: bool,
) -> Result<(), DriverError> {
    let mode = if exclusive {
        "EXCLUSIVE_PROCESS"
    } else {
        "DEFAULT"
    };
    run(driver, &["-i", card, "-c", mode]).await
}

async fn run(driver: &DriverRoot, arguments: &[&str]) -> Result<(), DriverError> {
    let mut command = driver.command(PROGRAM)?;
    command.args(arguments);
    let name = format!("{PROGRAM} {}", arguments.join(" "));
    let output = output(&name, command, "", DEADLINE).await?;
    if output.status.success() {
        return Ok(());
    }
    Err(DriverError::Failed(name, complaint(&output)))
}
