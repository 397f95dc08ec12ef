//! A wire between the run and one process with a network namespace of its own. It can lose every packet in both
//! directions, silently, as a broken switch does; and the kernel counts what that process alone connects.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::wait_until;

/// A pair of virtual Ethernet devices. Neighbours are written down for good, so that nothing is asked or learnt: a
/// packet to an address of the link layer that nobody has is lost on arrival.
#[derive(Debug)]
pub(crate) struct Wire {
    number: u8,
    /// The process whose namespace holds the far end.
    pid: u32,
}

impl Wire {
    /// A wire to the network namespace of `pid`, which must be about to have one of its own.
    pub(crate) fn to(pid: u32, number: u8) -> Result<Self> {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
        let own = namespace("self")?;
        wait_until("a network namespace", Duration::from_secs(10), || {
            let theirs = namespace(&pid.to_string()).context("the process has ended")?;
            Ok((theirs != own).then_some(()))
        })?;
        let wire = Self { number, pid };
        let (near, far) = (wire.near_mac(), wire.far_mac());
        let (here, there) = (wire.near(), wire.far());
        let device = wire.device();
        ip(
            &[],
            &format!(
                "link add {device} address {near} type veth peer name eth0 address {far} netns {pid}\n\
                 addr add {here}/30 dev {device}\nlink set {device} up\n{}",
                wire.neighbour(&far)
            ),
        )?;
        wire.inside(&format!(
            "link set lo up\naddr add {there}/30 dev eth0\nlink set eth0 up\n\
             neigh replace {here} lladdr {near} dev eth0 nud permanent\n"
        ))?;
        Ok(wire)
    }

    /// The address of the near end: ours.
    pub(crate) fn near(&self) -> String {
        format!("10.98.{}.1", self.number)
    }

    /// Loses every packet from now on.
    pub(crate) fn cut(&self) -> Result<()> {
        let nobody = format!("02:00:00:00:{:02x}:fe", self.number);
        self.set(&nobody, &nobody)
    }

    /// Loses no more packets.
    pub(crate) fn mend(&self) -> Result<()> {
        self.set(&self.near_mac(), &self.far_mac())
    }

    /// How many connections the far end has begun, whatever became of them: the kernel's own count.
    pub(crate) fn opened(&self) -> Result<u64> {
        let file = format!("/proc/{}/net/snmp", self.pid);
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        let mut rows = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = rows.next().zip(rows.next()).context("no row for TCP")?;
        let mut cells = names.split(' ').zip(values.split(' '));
        let cell = cells.find(|(name, _)| *name == "ActiveOpens");
        Ok(cell.context("no ActiveOpens")?.1.parse()?)
    }

    fn set(&self, near: &str, far: &str) -> Result<()> {
        let change = format!("link set {} address {near}\n", self.device());
        ip(&[], &(change + &self.neighbour(far)))
    }

    fn neighbour(&self, far: &str) -> String {
        let (there, device) = (self.far(), self.device());
        format!("neigh replace {there} lladdr {far} dev {device} nud permanent\n")
    }

    fn inside(&self, batch: &str) -> Result<()> {
        let net = format!("--net=/proc/{}/ns/net", self.pid);
        ip(&["nsenter", &net], batch)
    }

    fn device(&self) -> String {
        format!("wire{}", self.number)
    }

    fn far(&self) -> String {
        format!("10.98.{}.2", self.number)
    }

    fn near_mac(&self) -> String {
        format!("02:00:00:00:{:02x}:01", self.number)
    }

    fn far_mac(&self) -> String {
        format!("02:00:00:00:{:02x}:02", self.number)
    }
}

/// Runs `ip` on a batch, by way of another program if one is given.
fn ip(by: &[&str], batch: &str) -> Result<()> {
    let words = [by, &["ip", "-batch", "-"]].concat();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", words[0]))?;
    let mut input = child.stdin.take().context("the input of ip")?;
    input.write_all(batch.as_bytes())?;
    drop(input);
    let done = child.wait_with_output()?;
    let refusal = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "ip: {}:\n{batch}", refusal.trim());
    Ok(())
}
