//! What a unit requires, as it is at one moment.

use super::unit::{MAX_DEPENDENCIES, job_id, read, waits_to_restart};
use super::{Dependency, Properties, SERVICE, Systemd, UNIT};

impl Systemd {
    /// The state of these services; one that cannot be read is left out.
    pub(super) async fn dependencies(&self, units: &[(String, bool)]) -> Vec<Dependency> {
        let mut found = Vec::new();
        for (unit, is_bound) in units.iter().cloned() {
            let read = async {
                let path = self.load(&unit).await?;
                let active_state = self.text(&path, UNIT, "ActiveState").await?;
                let has_job = job_id(&self.property(&path, UNIT, "Job").await?).is_some();
                let is_ending =
                    active_state == "deactivating" || waits_to_restart(&self.text(&path, UNIT, "SubState").await?);
                let ends_by_itself = is_ending && !has_job;
                let result = self.text(&path, SERVICE, "Result").await?;
                zbus::Result::Ok(Dependency { unit, is_bound, active_state, result, ends_by_itself })
            };
            found.extend(read.await);
        }
        found
    }

    /// Whether systemd is not to start the unit of these properties at present: nobody has started a unit of its `Requisite=`, the
    /// conditions of one of its `BindsTo=`, such as `ConditionPathExists=`, are not met, or somebody has canceled the start of one that it
    /// requires. The result of its own job does not tell that from a failure.
    pub(super) async fn is_declined(&self, properties: &Properties) -> bool {
        for property in ["Requisite", "BindsTo", "Requires"] {
            let units: Vec<String> = properties.get(property).map(read).unwrap_or_default();
            for unit in units.iter().take(MAX_DEPENDENCIES) {
                if self.declines(property, unit).await.unwrap_or_default() {
                    return true;
                }
            }
        }
        false
    }

    async fn declines(&self, property: &str, unit: &str) -> zbus::Result<bool> {
        let path = self.load(unit).await?;
        Ok(match (self.text(&path, UNIT, "ActiveState").await?.as_str(), property) {
            ("inactive", "Requisite") => true,
            ("inactive", "BindsTo") => {
                let is_met: bool = read(&self.property(&path, UNIT, "ConditionResult").await?);
                // Before a start was tried, they have not been checked, and the result is `false` too.
                let checked_at: u64 = read(&self.property(&path, UNIT, "ConditionTimestampMonotonic").await?);
                checked_at != 0 && !is_met
            }
            // `systemctl cancel` removes the job, and the start goes on.
            ("activating", _) => {
                let has_job = job_id(&self.property(&path, UNIT, "Job").await?).is_some();
                !has_job && !waits_to_restart(&self.text(&path, UNIT, "SubState").await?)
            }
            _ => false,
        })
    }
}
