//! Why systemd ends this process: asked once, when it has sent its signal.

use std::time::Duration;

use zbus::OwnedObjectPath;

use super::{
    MANAGER, MANAGER_PATH, UNIT,
    bus::Systemd,
    properties::{job, job_type, text},
};
use crate::checks::kubelet::JobKind;

/// The deadline of each call; whoever asks has one for all of them.
const CALL_TIMEOUT: Duration = Duration::from_millis(300);

/// Why we are to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The host goes down, and every unit with it.
    HostGoesDown,
    /// Somebody wants our unit stopped, and it stays so.
    Stop,
    /// Our unit is started anew at once, or it is none of systemd's doing: a signal by hand, a container's end.
    Other,
}

/// Asks systemd, on a connection of its own: the one for the kubelet's unit may not be there, or be busy.
///
/// # Errors
/// When the bus or systemd does not answer, or knows no unit that we belong to.
pub async fn ending() -> zbus::Result<Ending> {
    let systemd = Systemd::connect(CALL_TIMEOUT).await?;
    let state = systemd.get(MANAGER_PATH, MANAGER, "SystemState").await?;
    if text(&state) == "stopping" {
        return Ok(Ending::HostGoesDown);
    }
    // 0 is whoever asks, by what the bus knows of him: in a container our own number is not the host's.
    let unit = systemd.manager("GetUnitByPID", &0_u32).await?;
    let unit: OwnedObjectPath = unit.body().deserialize()?;
    let queued = systemd.get(unit.as_str(), UNIT, "Job").await?;
    match job(&queued) {
        Some((id, path)) if id != 0 => Ok(match job_type(&systemd, &path).await? {
            JobKind::Stop => Ending::Stop,
            _ => Ending::Other,
        }),
        _ => Ok(Ending::Other),
    }
}
