//! Which units are followed: the kubelet's, and those beside it.

use std::collections::VecDeque;

use tracing::debug;
use zbus::OwnedObjectPath;

use super::{
    BusEvent, Followed, MAX_UNITS, Session, UNIT,
    properties::text,
    rules::{follow, hear_of_jobs},
};
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

    /// Those that are asked for, or that the kubelet's unit depends on, and those on which these depend, if they are not followed
    /// yet: the nearest first, as many as there is room for. One that cannot be had is no reason to lose the others.
    pub(super) async fn follow_beside(&mut self) {
        let mut names = VecDeque::from(self.beside.borrow_and_update().clone());
        names.extend(self.depended_upon(0));
        if !self.units[0].unit.dependencies.is_empty() {
            self.hear_of_jobs().await;
        }
        let mut looked_at: Vec<String> = Vec::new();
        while let Some(name) = names.pop_front()
            && looked_at.len() < 2 * MAX_UNITS
        {
            if looked_at.contains(&name) {
                continue;
            }
            looked_at.push(name.clone());
            if self.named(&name).is_none() && self.units.len() < MAX_UNITS {
                let followed = match self.add(&name).await {
                    Ok(index) => self.read_unit(index).await,
                    Err(e) => Err(e),
                };
                if let Err(e) = followed {
                    debug!(unit = name, error = %e, "a unit cannot be followed");
                }
            }
            if let Some(index) = self.named(&name) {
                names.extend(self.depended_upon(index));
            }
        }
    }

    fn depended_upon(&self, index: usize) -> Vec<String> {
        let list = &self.units[index].unit.dependencies;
        list.iter().map(|one| one.unit.clone()).collect()
    }

    /// A stop of the kubelet that is asked for while it is under way shows in its job alone. Nobody needs that unless it may be
    /// stopped with another unit.
    async fn hear_of_jobs(&mut self) {
        if self.hears_of_jobs {
            return;
        }
        let connection = self.bus.connection();
        let heard = self.bus.during(hear_of_jobs(&connection)).await;
        match heard {
            Ok(()) => self.hears_of_jobs = true,
            Err(e) => debug!(error = %e, "changes of jobs cannot be heard of"),
        }
    }
}
