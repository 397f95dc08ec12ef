//! Which units are followed: the kubelet's, and those beside it.

use tracing::debug;
use zbus::OwnedObjectPath;

use super::{BusEvent, Followed, MAX_UNITS, Session, UNIT, properties::text, rules::follow};
use crate::checks::kubelet::Unit;

impl Session {
    /// The kubelet's unit: the first of those it may be that is there, else the first.
    pub(super) async fn choose(&mut self) -> zbus::Result<String> {
        let is_open = self.candidates.len() > 1;
        for unit in self.candidates.clone().into_iter().filter(|_| is_open) {
            let path = self.load(&unit).await?;
            let systemd = self.bus.systemd();
            let asked = systemd.get(path.as_str(), UNIT, "LoadState");
            let state = self.bus.during(asked).await?;
            if text(&state) == "loaded" {
                return Ok(unit);
            }
        }
        Ok(self.candidates.first().cloned().unwrap_or_default())
    }

    /// Units have been read anew, and the kubelet's was not there: perhaps another one is now.
    pub(super) async fn choose_again(&mut self) -> zbus::Result<()> {
        if self.units[0].unit.load_state == "loaded" {
            return Ok(());
        }
        let unit = self.choose().await?;
        if self.named(&unit).is_none() {
            let index = self.add(&unit).await?;
            self.units[index].is_kubelets = true;
            self.units.swap_remove(0); // the new one takes its place
            self.say(BusEvent::Watching(unit)).await;
        }
        Ok(())
    }

    async fn load(&mut self, unit: &str) -> zbus::Result<OwnedObjectPath> {
        let systemd = self.bus.systemd();
        let asked = self.bus.during(systemd.manager("LoadUnit", &(unit)));
        asked.await?.body().deserialize()
    }

    /// Has the bus tell of a unit from now on; its place among those that are followed.
    pub(super) async fn add(&mut self, name: &str) -> zbus::Result<usize> {
        let path = self.load(name).await?;
        let connection = self.bus.connection();
        self.bus.during(follow(&connection, name, &path)).await?;
        self.units.push(Followed {
            name: name.to_owned(),
            path,
            unit: Unit::default(),
            is_kubelets: self.units.is_empty(),
        });
        Ok(self.units.len() - 1)
    }

    /// Those that are asked for, or that the kubelet's unit depends on, and not followed yet. One that cannot be had is no reason to lose the others.
    pub(super) async fn follow_beside(&mut self) {
        let mut names = self.beside.borrow_and_update().clone();
        let dependencies = &self.units[0].unit.dependencies;
        names.extend(dependencies.iter().map(|one| one.unit.clone()));
        for name in names {
            let known = self.units.iter().any(|one| one.name == name);
            if known || self.units.len() >= MAX_UNITS {
                continue;
            }
            let followed = match self.add(&name).await {
                Ok(index) => self.read_unit(index).await,
                Err(e) => Err(e),
            };
            if let Err(e) = followed {
                debug!(unit = name, error = %e, "a unit cannot be followed");
            }
        }
    }
}
