//! Blocks, warps and whose turn it is.

use crate::execute::{Context, Warp, lanes_of};
use crate::fault::{Fault, FaultKind};
use crate::memory::Memory;
use crate::parse::Kernel;
use crate::shared::Shared;
use crate::{LANES, Mask};

/// A launch of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub kernel: &'a Kernel,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// One value for each parameter; the low bytes count.
    pub arguments: &'a [u64],
    /// 0: warps run one after the other as far as they get, lanes together wherever they can. Any other: warps and
    /// parts of warps take turns of random length in random order.
    pub seed: u64,
}

/// What a launch did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Statistics {
    /// Instructions, each counted once for the lanes that executed it together.
    pub instructions: u64,
}

/// Instructions that a block may execute: hundreds of times what the kernels here need.
const BUDGET: u64 = 200_000_000;
/// The longest turn under a seed, in instructions.
const TURN: u64 = 300;

impl Launch<'_> {
    /// Runs all blocks, one after the other.
    pub fn run(&self, memory: &mut Memory) -> Result<Statistics, Fault> {
        let parameters = self.parameters()?;
        let threads = self.block.iter().product::<u32>() as usize;
        if threads == 0 || !threads.is_multiple_of(LANES) || threads > self.kernel.max_threads {
            let limit = self.kernel.max_threads;
            return Err(Fault::new(FaultKind::Launch, format!("{threads} threads, in warps of 32 up to {limit}")));
        }
        let mut random = Random(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut statistics = Statistics::default();
        for z in 0..self.grid[2] {
            for y in 0..self.grid[1] {
                for x in 0..self.grid[0] {
                    let mut context = Context {
                        kernel: self.kernel,
                        memory,
                        shared: Shared::new(self.kernel.shared_bytes),
                        parameters: &parameters,
                        block: [x, y, z],
                        block_size: self.block,
                        grid: self.grid,
                        interval: 0,
                        budget: BUDGET,
                    };
                    run_block(threads / LANES, &mut context, &mut random)?;
                    statistics.instructions += BUDGET - context.budget;
                }
            }
        }
        Ok(statistics)
    }

    fn parameters(&self) -> Result<Vec<u8>, Fault> {
        let declared = &self.kernel.parameters;
        if declared.len() != self.arguments.len() {
            let what = format!("{} arguments for {} parameters", self.arguments.len(), declared.len());
            return Err(Fault::new(FaultKind::Launch, what));
        }
        let size = declared.last().map_or(0, |(offset, bytes)| offset + bytes);
        let mut buffer = vec![0; size];
        for ((offset, bytes), value) in declared.iter().zip(self.arguments) {
            buffer[*offset..offset + bytes].copy_from_slice(&value.to_le_bytes()[..*bytes]);
        }
        Ok(buffer)
    }
}

fn run_block(warps: usize, context: &mut Context, random: &mut Random) -> Result<(), Fault> {
    let mut warps: Vec<Warp> = (0..warps).map(|w| Warp::new(context.kernel, (w * LANES) as u32)).collect();
    loop {
        let ready: Vec<usize> = (0..warps.len()).filter(|w| warps[*w].running != 0).collect();
        if ready.is_empty() {
            if warps.iter().all(|w| w.exited == Mask::MAX) {
                return Ok(());
            }
            release_barrier(&mut warps, context)?;
            continue;
        }
        let warp = &mut warps[random.choose(&ready)];
        let (group, until, turn) = random.group(warp);
        warp.run(group, until, turn, context)?;
        warp.release_collective(context)?;
    }
}

/// No warp can go on: opens the barrier if everyone has come to it.
fn release_barrier(warps: &mut [Warp], context: &mut Context) -> Result<(), Fault> {
    let name = &context.kernel.name;
    for warp in warps.iter() {
        let waiting = warp.at_barrier;
        if waiting | warp.exited != Mask::MAX {
            let what = "some threads wait at a barrier or a collective instruction that others never reach";
            return Err(Fault::new(FaultKind::Deadlock, what).at(name, 0));
        }
        if waiting != 0 {
            let pc = warp.pc[waiting.trailing_zeros() as usize];
            if waiting != Mask::MAX || lanes_of(waiting).any(|lane| warp.pc[lane] != pc) {
                let what = "lanes of a warp at different barriers, or at one that others have exited before";
                return Err(Fault::new(FaultKind::Divergence, what).at(name, context.kernel.code[pc as usize].line));
            }
        }
    }
    context.interval += 1;
    for warp in warps {
        warp.running |= std::mem::take(&mut warp.at_barrier);
    }
    Ok(())
}

/// Decides whose turn it is: a xorshift generator, or no choice at all with seed 0.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn choose(&mut self, among: &[usize]) -> usize {
        if self.0 == 0 { among[0] } else { among[self.next() as usize % among.len()] }
    }

    /// Lanes of a warp that stand at the same place, how far they may go before they meet others, and for how long.
    fn group(&mut self, warp: &Warp) -> (Mask, u32, u64) {
        let leader = if self.0 == 0 {
            // The lanes that are furthest behind go first, so that parted lanes meet again as soon as they can.
            lanes_of(warp.running).min_by_key(|lane| warp.pc[*lane]).unwrap_or(0)
        } else {
            let running: Vec<usize> = lanes_of(warp.running).collect();
            self.choose(&running)
        };
        let pc = warp.pc[leader];
        let mut group = 0;
        let mut until = u32::MAX;
        for lane in lanes_of(warp.running) {
            if warp.pc[lane] == pc {
                group |= 1 << lane;
            } else if warp.pc[lane] > pc {
                until = until.min(warp.pc[lane]);
            }
        }
        if self.0 == 0 {
            return (group, until, u64::MAX);
        }
        // One time in four only some of the lanes: the others fall behind, as a GPU may let them.
        if self.next().is_multiple_of(4) {
            let part = group & (self.next() as Mask | 1 << leader);
            if part != group {
                return (part, u32::MAX, 1 + self.next() % TURN);
            }
        }
        (group, until, 1 + self.next() % TURN)
    }
}
