//! Figures of GPUs by the name that their driver gives.
//!
//! Rates are dense. bf16 is summed in fp32: a GeForce does that at half of the rate of the professional card of its
//! architecture (512 against 1,024 FLOP a clock and multiprocessor on 8.6, 8.9 and 12.x).

use crate::Arch;
use crate::card::flops_per_clock;
use serde::Serialize;

use crate::chip_memory::ChipMemory;

/// A GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chip {
    /// As its driver gives it.
    pub name: &'static str,
    /// Compute capability, (major, minor).
    pub capability: (u32, u32),
    /// Memory that a run can take.
    pub memory: ChipMemory,
    /// None where its rates are not known.
    pub peak: Option<Peak>,
}

/// Highest rates of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// Device and source of the figures.
    pub device: &'static str,
    /// Dense bf16 tensor throughput, FLOP/s.
    pub bf16_flops: f64,
    /// Dense int8 tensor throughput, operations/s.
    pub int8_flops: f64,
    /// fp32 throughput, FLOP/s.
    pub fp32_flops: f64,
    /// Memory bandwidth, bytes/s.
    pub bytes_per_s: f64,
}

/// Figures that a driver states of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
    /// Highest clock of the multiprocessors, kHz.
    pub core_khz: u32,
    /// Highest clock of the memory, kHz.
    pub memory_khz: u32,
    /// Width of the memory bus, bits.
    pub bus_bits: u32,
}

impl Peak {
    /// `rates` are of bf16, int8 and fp32 in 10^12 operations/s, and of memory in 10^9 bytes/s.
    const fn new(device: &'static str, rates: [f64; 4]) -> Self {
        let [bf16, int8, fp32, memory] = rates;
        Self {
            device,
            bf16_flops: bf16 * 1e12,
            int8_flops: int8 * 1e12,
            fp32_flops: fp32 * 1e12,
            bytes_per_s: memory * 1e9,
        }
    }
}

const A100: &str = "A100 (NVIDIA A100 data sheet)";
const RTX_3090: Peak =
    Peak::new("GeForce RTX 3090 (NVIDIA Ampere GA102 architecture paper)", [71.0, 284.0, 35.6, 936.0]);
const RTX_4090: Peak = Peak::new("GeForce RTX 4090 (NVIDIA Ada architecture paper)", [165.2, 660.6, 82.6, 1008.0]);
const RTX_5090: Peak =
    Peak::new("GeForce RTX 5090 (NVIDIA RTX Blackwell architecture paper)", [209.5, 838.0, 104.8, 1792.0]);
const H200: Peak = Peak::new("H200 SXM (NVIDIA data sheet)", [989.0, 1979.0, 67.0, 4800.0]);
const GB10: Peak = Peak::new(
    "GB10 (DGX Spark data sheet: 1 PFLOP sparse fp4, an eighth of it dense bf16, a quarter dense int8)",
    [125.0, 250.0, 31.0, 273.0],
);
const A100_80: Peak = Peak::new(A100, [312.0, 624.0, 19.5, 2039.0]);
const A100_40: Peak = Peak::new(A100, [312.0, 624.0, 19.5, 1555.0]);
const GH200: &str = "GH200 (NVIDIA data sheet)";
const RTX_PRO_6000: &str = "RTX PRO 6000 (NVIDIA RTX Blackwell PRO architecture paper)";

/// Lists GPUs whose memory is known.
pub static CHIPS: [Chip; 24] = [
    Chip::new("NVIDIA A100-SXM4-40GB", (8, 0), ChipMemory::published(40), A100_40),
    Chip::new("NVIDIA A100-SXM4-80GB", (8, 0), ChipMemory::published(80), A100_80),
    Chip::new("NVIDIA A100-PCIE-40GB", (8, 0), ChipMemory::published(40), A100_40),
    Chip::new(
        "NVIDIA A100 80GB PCIe",
        (8, 0),
        ChipMemory::published(80),
        Peak::new(A100, [312.0, 624.0, 19.5, 1935.0]),
    ),
    Chip::new(
        "NVIDIA A30",
        (8, 0),
        ChipMemory::published(24),
        Peak::new("A30 (NVIDIA A30 data sheet)", [165.0, 330.0, 10.3, 933.0]),
    ),
    Chip::new(
        "NVIDIA A10",
        (8, 6),
        ChipMemory::published_with_ecc(24),
        Peak::new("A10 (NVIDIA A10 data sheet)", [125.0, 250.0, 31.2, 600.0]),
    ),
    Chip::new(
        "NVIDIA A40",
        (8, 6),
        ChipMemory::published_with_ecc(48),
        Peak::new("A40 (NVIDIA A40 data sheet)", [149.7, 299.3, 37.4, 696.0]),
    ),
    Chip::new(
        "NVIDIA RTX A6000",
        (8, 6),
        ChipMemory::published(48),
        Peak::new("RTX A6000 (NVIDIA Ampere GA102 architecture paper)", [154.8, 309.7, 38.7, 768.0]),
    ),
    Chip::new("NVIDIA GeForce RTX 3090", (8, 6), ChipMemory::published(24), RTX_3090),
    Chip::new("NVIDIA GeForce RTX 4090", (8, 9), ChipMemory::published(24), RTX_4090),
    Chip::new(
        "NVIDIA L4",
        (8, 9),
        ChipMemory::published_with_ecc(24),
        Peak::new("L4 (NVIDIA L4 data sheet)", [121.0, 242.5, 30.3, 300.0]),
    ),
    Chip::new(
        "NVIDIA L40S",
        (8, 9),
        ChipMemory::published_with_ecc(48),
        Peak::new("L40S (NVIDIA L40S data sheet)", [362.0, 733.0, 91.6, 864.0]),
    ),
    Chip::new(
        "NVIDIA RTX 6000 Ada Generation",
        (8, 9),
        ChipMemory::published(48),
        Peak::new("RTX 6000 Ada (NVIDIA Ada architecture paper)", [364.2, 728.5, 91.1, 960.0]),
    ),
    Chip::new(
        "NVIDIA H100 80GB HBM3",
        (9, 0),
        ChipMemory::published(80),
        Peak::new("H100 SXM (NVIDIA data sheet)", [989.4, 1978.9, 66.9, 3350.0]),
    ),
    Chip::new(
        "NVIDIA H100 PCIe",
        (9, 0),
        ChipMemory::published(80),
        Peak::new("H100 PCIe (NVIDIA data sheet)", [756.0, 1513.0, 51.2, 2000.0]),
    ),
    Chip::new(
        "NVIDIA H100 NVL",
        (9, 0),
        ChipMemory::published(94),
        Peak::new("H100 NVL (NVIDIA data sheet)", [835.5, 1670.5, 60.0, 3900.0]),
    ),
    Chip::new("NVIDIA GH200 480GB", (9, 0), ChipMemory::published(96), Peak::new(GH200, [990.0, 1979.0, 67.0, 4000.0])),
    Chip::new(
        "NVIDIA GH200 144G HBM3e",
        (9, 0),
        ChipMemory::published(144),
        Peak::new(GH200, [990.0, 1979.0, 67.0, 4900.0]),
    ),
    // A cuBLAS GEMM of 8192 x 8192 x 8192, and a copy of 4 GiB; fp32 and int8 are not measured.
    Chip::new(
        "NVIDIA H200",
        (9, 0),
        ChipMemory::reported(150_109_880_320),
        Peak::new("H200 SXM (measured)", [790.0, 1979.0, 67.0, 4280.0]),
    ),
    // Of the 1,440 GB of a DGX B200's data sheet an eighth. The rate of `mma.sync` there is not published.
    Chip { name: "NVIDIA B200", capability: (10, 0), memory: ChipMemory::published(180), peak: None },
    Chip::new("NVIDIA GeForce RTX 5090", (12, 0), ChipMemory::published(32), RTX_5090),
    Chip::new(
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        (12, 0),
        ChipMemory::published(96),
        Peak::new(RTX_PRO_6000, [503.8, 1007.6, 126.0, 1792.0]),
    ),
    Chip::new(
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        (12, 0),
        ChipMemory::published(96),
        Peak::new(RTX_PRO_6000, [438.9, 877.9, 110.0, 1792.0]),
    ),
    // 128 GB, less than GiB: systems report 119 GiB.
    Chip::new("NVIDIA GB10", (12, 1), ChipMemory::shared(128_000_000_000), GB10),
];

impl Chip {
    const fn new(name: &'static str, capability: (u32, u32), memory: ChipMemory, peak: Peak) -> Self {
        Self { name, capability, memory, peak: Some(peak) }
    }

    /// Returns the architecture whose launches it runs.
    ///
    /// # Panics
    /// If a row of the table is of no GPU that programs are built for.
    pub fn arch(&self) -> Arch {
        Arch::of_device(self.capability, Arch::GPUS).expect("a chip of the table runs an architecture")
    }
}

impl Peak {
    /// Returns the data sheet figures of the GPU that an architecture's launches are sized for; none for the simulated
    /// GPU, and for sm_100.
    pub fn of(arch: Arch) -> Option<Self> {
        match arch {
            Arch::Sm80 => Some(A100_80),
            Arch::Sm86 => Some(RTX_3090),
            Arch::Sm89 => Some(RTX_4090),
            Arch::Sm90a | Arch::Sm90Portable => Some(H200),
            Arch::Sm120 => Some(RTX_5090),
            Arch::Sm121 => Some(GB10),
            Arch::Sm100 | Arch::Sim => None,
        }
    }

    /// Returns the figures of a device by its driver's name: measured ones if there are any, else its data sheet's; of
    /// a device that is not in the table, operations a clock at the clocks that its driver states.
    pub fn of_device(name: &str, capability: Option<(u32, u32)>, clocks: Clocks) -> Option<Self> {
        let known = CHIPS.iter().find(|chip| chip.name == name).and_then(|chip| chip.peak);
        known.or_else(|| Self::by_clocks(name, capability?, clocks))
    }

    /// Multiplies multiprocessors, clock and operations a clock; none for architectures whose operations are not known.
    fn by_clocks(name: &str, capability: (u32, u32), clocks: Clocks) -> Option<Self> {
        let [bf16, int8] = [flops_per_clock(name, capability)?, 2 * flops_per_clock("", capability)?];
        // fp32 operations a clock and multiprocessor (architecture papers).
        let fp32 = if capability == (8, 0) { 128 } else { 256 };
        let per_s = f64::from(clocks.multiprocessors) * f64::from(clocks.core_khz) * 1e3;
        Some(Self {
            device: "a device by its clocks, as the driver states them",
            bf16_flops: per_s * f64::from(bf16),
            int8_flops: per_s * f64::from(int8),
            fp32_flops: per_s * f64::from(fp32),
            // Two transfers a clock.
            bytes_per_s: f64::from(clocks.memory_khz) * 1e3 * 2.0 * f64::from(clocks.bus_bits) / 8.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::human_bytes;

    const CLOCKS: Clocks = Clocks { multiprocessors: 24, core_khz: 2_460_000, memory_khz: 8_501_000, bus_bits: 128 };

    #[test]
    fn devices_have_the_figures_of_their_names() {
        let names = [
            ("NVIDIA A100-SXM4-80GB", (8, 0)),
            ("NVIDIA A100-PCIE-40GB", (8, 0)),
            ("NVIDIA A100 80GB PCIe", (8, 0)),
            ("NVIDIA A30", (8, 0)),
            ("NVIDIA A10", (8, 6)),
            ("NVIDIA A40", (8, 6)),
            ("NVIDIA RTX A6000", (8, 6)),
            ("NVIDIA GeForce RTX 3090", (8, 6)),
            ("NVIDIA GeForce RTX 4090", (8, 9)),
            ("NVIDIA L4", (8, 9)),
            ("NVIDIA L40S", (8, 9)),
            ("NVIDIA RTX 6000 Ada Generation", (8, 9)),
            ("NVIDIA H100 80GB HBM3", (9, 0)),
            ("NVIDIA H100 PCIe", (9, 0)),
            ("NVIDIA H100 NVL", (9, 0)),
            ("NVIDIA GH200 480GB", (9, 0)),
            ("NVIDIA H200", (9, 0)),
            ("NVIDIA B200", (10, 0)),
            ("NVIDIA GeForce RTX 5090", (12, 0)),
            ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0)),
            ("NVIDIA GB10", (12, 1)),
            // By clocks: the first sums at half of the second's rate.
            ("NVIDIA GeForce RTX 4060", (8, 9)),
            ("NVIDIA RTX 4000 SFF Ada Generation", (8, 9)),
        ];
        let lines = names.map(|(name, capability)| {
            let peak = Peak::of_device(name, Some(capability), CLOCKS);
            let figures = peak.map_or("no figures".to_owned(), |peak| {
                let Peak { device, bf16_flops, int8_flops, fp32_flops, bytes_per_s } = peak;
                let [bf16, int8, fp32] = [bf16_flops, int8_flops, fp32_flops].map(|rate| rate / 1e12);
                format!("bf16 {bf16:.1}, int8 {int8:.1}, fp32 {fp32:.1} T/s, {:.0} GB/s: {device}", bytes_per_s / 1e9)
            });
            format!("{name}: {figures}")
        });
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn chips_have_memory_of_a_named_source() {
        let lines = CHIPS.map(|chip| {
            let Chip { name, memory, .. } = chip;
            format!("{name}, {}: {} of {memory}", chip.arch(), human_bytes(memory.bytes()))
        });
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn clocks_give_what_data_sheets_say() {
        // A boost clock of 2.52 GHz, 10.5 GHz memory on 384 bits.
        let clocks = Clocks { multiprocessors: 128, core_khz: 2_520_000, memory_khz: 10_501_000, bus_bits: 384 };
        let [told, known] = ["NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090"]
            .map(|name| Peak::of_device(name, Some((8, 9)), clocks).unwrap());
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        assert!(near(told.bf16_flops, known.bf16_flops) && near(told.int8_flops, known.int8_flops));
        assert!(near(told.fp32_flops, known.fp32_flops) && near(told.bytes_per_s, known.bytes_per_s));
    }
}
