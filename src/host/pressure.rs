//! Pressure stall information of the host (Documentation/accounting/psi.rst).

use procfs::{CpuPressure, Current as _, IoPressure, MemoryPressure};

/// How much of the last ten seconds tasks waited; none where the kernel does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[expect(clippy::struct_field_names, reason = "a name has its unit")]
pub struct Pressure {
    /// Some task waited for a processor.
    pub cpu_some_percent: Option<f32>,
    /// All tasks waited for memory.
    pub memory_full_percent: Option<f32>,
    /// Some task waited for a disk.
    pub io_some_percent: Option<f32>,
}

/// Reads /proc/pressure.
pub fn read() -> Pressure {
    Pressure {
        cpu_some_percent: CpuPressure::current().ok().map(|pressure| pressure.some.avg10),
        memory_full_percent: MemoryPressure::current().ok().map(|pressure| pressure.full.avg10),
        io_some_percent: IoPressure::current().ok().map(|pressure| pressure.some.avg10),
    }
}
