//! One warp: its registers, and the execution of instructions by a group of its lanes.
//!
//! An instruction is executed for all lanes of the group at once: that is what makes the tests fast.

use std::collections::VecDeque;

use crate::arithmetic::{compare, insert, integer32, integer64, map_float, map2, multiply_wide, unary};
use crate::fault::{Fault, FaultKind};
use crate::instruction::*;
use crate::memory::{Memory, aligned};
use crate::parse::Kernel;
use crate::shared::{Actor, Shared};
use crate::{LANES, Mask};

/// The value of a register or operand in every lane.
pub type Lanes<T> = [T; LANES];

/// What the lanes of a warp share with the rest of the launch.
pub struct Context<'a> {
    pub kernel: &'a Kernel,
    pub memory: &'a mut Memory,
    pub shared: Shared,
    pub parameters: &'a [u8],
    pub block: [u32; 3],
    pub block_size: [u32; 3],
    pub grid: [u32; 3],
    /// Barriers that the block has passed.
    pub interval: u32,
    /// Instructions that warps may still execute.
    pub budget: u64,
}

/// A warp of 32 threads.
pub struct Warp {
    /// Thread number of lane 0.
    pub first_thread: u32,
    r32: Vec<Lanes<u32>>,
    r64: Vec<Lanes<u64>>,
    predicates: Vec<Mask>,
    /// Which lanes have written each register.
    written32: Vec<Mask>,
    written64: Vec<Mask>,
    written_predicates: Vec<Mask>,
    pub pc: Lanes<u32>,
    /// Lanes that can go on.
    pub running: Mask,
    /// Lanes that wait for the rest of their warp.
    pub at_collective: Mask,
    /// Lanes that wait for the rest of their block.
    pub at_barrier: Mask,
    pub exited: Mask,
    copies: Vec<Copies>,
}

/// The background copies of one thread.
#[derive(Default, Clone)]
struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

/// A copy of 16 bytes; no source means zeros.
#[derive(Clone, Copy)]
struct Copy {
    to: u32,
    from: Option<u64>,
}

impl Warp {
    pub fn new(kernel: &Kernel, first_thread: u32) -> Warp {
        let registers = kernel.registers;
        Warp {
            first_thread,
            r32: vec![[0; LANES]; registers.r32.into()],
            r64: vec![[0; LANES]; registers.r64.into()],
            predicates: vec![0; registers.predicates.into()],
            written32: vec![0; registers.r32.into()],
            written64: vec![0; registers.r64.into()],
            written_predicates: vec![0; registers.predicates.into()],
            pc: [0; LANES],
            running: Mask::MAX,
            at_collective: 0,
            at_barrier: 0,
            exited: 0,
            copies: vec![Copies::default(); LANES],
        }
    }

    /// Executes up to `quantum` instructions with the lanes of `group`, which all stand at the same place, until they
    /// wait, exit, part, or reach `until`, where other lanes stand.
    pub fn run(&mut self, group: Mask, until: u32, quantum: u64, context: &mut Context) -> Result<(), Fault> {
        let kernel = context.kernel;
        let mut pc = self.pc[group.trailing_zeros() as usize];
        for _ in 0..quantum {
            let instruction = &kernel.code[pc as usize];
            let fault = |f: Fault| f.at(&kernel.name, instruction.line);
            context.budget = context
                .budget
                .checked_sub(1)
                .ok_or_else(|| fault(Fault::new(FaultKind::Endless, "more instructions than any correct run needs")))?;
            let active = match instruction.guard {
                None => group,
                Some((p, wanted)) => {
                    let value = self.predicate(SP::Reg(p), group).map_err(fault)?;
                    group & if wanted { value } else { !value }
                }
            };
            match instruction.op {
                Op::Branch { target } => {
                    if active != 0 && active != group {
                        self.set_pc(active, target);
                        self.set_pc(group & !active, pc + 1);
                        return Ok(());
                    }
                    pc = if active != 0 { target } else { pc + 1 };
                }
                Op::Exit | Op::Barrier => {
                    if active != 0 && active != group {
                        let what = "lanes part at an exit or a barrier that only some of them take";
                        return Err(fault(Fault::new(FaultKind::Divergence, what)));
                    }
                    if active == 0 {
                        pc += 1;
                        continue;
                    }
                    self.running &= !group;
                    if instruction.op == Op::Barrier {
                        self.set_pc(group, pc + 1);
                        self.at_barrier |= group;
                    } else {
                        self.check_exit(group).map_err(fault)?;
                        self.exited |= group;
                    }
                    return Ok(());
                }
                op if op.is_collective() => {
                    if active != group {
                        let what = "a collective instruction under a guard that only some lanes meet";
                        return Err(fault(Fault::new(FaultKind::Divergence, what)));
                    }
                    // All lanes here already: no need to stop.
                    if group == Mask::MAX {
                        self.collective(&op, context).map_err(fault)?;
                        pc += 1;
                        continue;
                    }
                    self.set_pc(group, pc);
                    self.running &= !group;
                    self.at_collective |= group;
                    return Ok(());
                }
                op => {
                    if active != 0 {
                        self.execute(&op, active, context).map_err(fault)?;
                    }
                    pc += 1;
                }
            }
            if pc >= until {
                break;
            }
        }
        self.set_pc(group, pc);
        Ok(())
    }

    /// Executes the collective that all lanes have reached. False while some are still under way.
    pub fn release_collective(&mut self, context: &mut Context) -> Result<bool, Fault> {
        if self.at_collective == 0 || self.running != 0 {
            return Ok(false);
        }
        let pc = self.pc[self.at_collective.trailing_zeros() as usize];
        let instruction = &context.kernel.code[pc as usize];
        let apart = (0..LANES).any(|lane| self.at_collective >> lane & 1 == 1 && self.pc[lane] != pc);
        if apart || self.at_collective != Mask::MAX {
            let what = if apart {
                "lanes wait at different collective instructions"
            } else if self.exited != 0 {
                "a collective instruction after some lanes have exited"
            } else {
                "some lanes wait at a collective instruction, others at a barrier"
            };
            return Err(Fault::new(FaultKind::Divergence, what).at(&context.kernel.name, instruction.line));
        }
        self.collective(&instruction.op, context).map_err(|f| f.at(&context.kernel.name, instruction.line))?;
        self.set_pc(Mask::MAX, pc + 1);
        self.at_collective = 0;
        self.running = Mask::MAX;
        Ok(true)
    }

    fn set_pc(&mut self, lanes: Mask, to: u32) {
        for (lane, pc) in self.pc.iter_mut().enumerate() {
            if lanes >> lane & 1 == 1 {
                *pc = to;
            }
        }
    }

    fn check_exit(&self, lanes: Mask) -> Result<(), Fault> {
        for lane in lanes_of(lanes) {
            let copies = &self.copies[lane];
            if !copies.open.is_empty() || copies.groups.iter().any(|g| !g.is_empty()) {
                return Err(Fault::new(FaultKind::Race, "a thread exits with copies under way"));
            }
        }
        Ok(())
    }

    // ---- operands ----

    pub fn read32(&self, source: S32, active: Mask, context: &Context) -> Result<Lanes<u32>, Fault> {
        match source {
            S32::Value(v) => Ok([v; LANES]),
            S32::Reg(r) => self.register32(r, active),
            S32::Special(Special::Block(d)) => Ok([context.block[d as usize]; LANES]),
            S32::Special(Special::BlockSize(d)) => Ok([context.block_size[d as usize]; LANES]),
            S32::Special(Special::GridSize(d)) => Ok([context.grid[d as usize]; LANES]),
            S32::Special(Special::Thread(d)) => {
                let [x, y, _] = context.block_size;
                Ok(std::array::from_fn(|lane| {
                    let thread = self.first_thread + lane as u32;
                    [thread % x, thread / x % y, thread / (x * y)][d as usize]
                }))
            }
        }
    }

    pub fn register32(&self, r: R32, active: Mask) -> Result<Lanes<u32>, Fault> {
        check_written(self.written32[r as usize], active, "32-bit")?;
        Ok(self.r32[r as usize])
    }

    fn read64(&self, source: S64, active: Mask) -> Result<Lanes<u64>, Fault> {
        match source {
            S64::Value(v) => Ok([v; LANES]),
            S64::Reg(r) => {
                check_written(self.written64[r as usize], active, "64-bit")?;
                Ok(self.r64[r as usize])
            }
        }
    }

    fn predicate(&self, source: SP, active: Mask) -> Result<Mask, Fault> {
        match source {
            SP::Value(v) => Ok(if v { Mask::MAX } else { 0 }),
            SP::Reg(p) => {
                check_written(self.written_predicates[p as usize], active, "predicate")?;
                Ok(self.predicates[p as usize])
            }
        }
    }

    pub fn write32(&mut self, d: R32, value: Lanes<u32>, active: Mask) {
        blend(&mut self.r32[d as usize], value, active);
        self.written32[d as usize] |= active;
    }

    fn write64(&mut self, d: R64, value: Lanes<u64>, active: Mask) {
        blend(&mut self.r64[d as usize], value, active);
        self.written64[d as usize] |= active;
    }

    pub fn write_predicate(&mut self, d: P, value: Mask, active: Mask) {
        let register = &mut self.predicates[d as usize];
        *register = *register & !active | value & active;
        self.written_predicates[d as usize] |= active;
    }

    fn address(&self, address: Address, active: Mask) -> Result<Lanes<u64>, Fault> {
        let base = self.read64(address.base, active)?;
        Ok(base.map(|b| b.wrapping_add_signed(address.offset)))
    }

    pub fn shared_address(&self, a: SharedAddress, active: Mask, context: &Context) -> Result<Lanes<u32>, Fault> {
        let base = self.read32(a.base, active, context)?;
        Ok(base.map(|b| b.wrapping_add_signed(a.offset)))
    }

    pub fn actor(&self, lane: usize, context: &Context) -> Actor {
        Actor { thread: (self.first_thread + lane as u32) as u16, interval: context.interval }
    }

    // ---- instructions ----

    fn execute(&mut self, op: &Op, active: Mask, context: &mut Context) -> Result<(), Fault> {
        match *op {
            Op::Integer32 { f, d, a, b } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                self.write32(d, integer32(f, a, b, active)?, active);
            }
            Op::Integer64 { f, d, a, b } => {
                let (a, b) = (self.read64(a, active)?, self.read64(b, active)?);
                self.write64(d, integer64(f, a, b)?, active);
            }
            Op::Shift64 { f, d, a, b } => {
                let (a, b) = (self.read64(a, active)?, self.read32(b, active, context)?);
                let value = map2(a, b, |a, b| match f {
                    Integer::ShiftLeft => a.checked_shl(b).unwrap_or(0),
                    Integer::ShiftRightSigned => (a as i64 >> b.min(63)) as u64,
                    _ => a.checked_shr(b).unwrap_or(0),
                });
                self.write64(d, value, active);
            }
            Op::MultiplyAdd32 { d, a, b, c } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                let c = self.read32(c, active, context)?;
                self.write32(d, map2(map2(a, b, u32::wrapping_mul), c, u32::wrapping_add), active);
            }
            Op::MultiplyAdd64 { d, a, b, c } => {
                let (a, b, c) = (self.read64(a, active)?, self.read64(b, active)?, self.read64(c, active)?);
                self.write64(d, map2(map2(a, b, u64::wrapping_mul), c, u64::wrapping_add), active);
            }
            Op::MultiplyWide { signed, d, a, b } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                self.write64(d, multiply_wide(signed, a, b), active);
            }
            Op::MultiplyAddWide { signed, d, a, b, c } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                let c = self.read64(c, active)?;
                self.write64(d, map2(multiply_wide(signed, a, b), c, u64::wrapping_add), active);
            }
            Op::Insert { d, from, to, position, length } => {
                let (from, to) = (self.read32(from, active, context)?, self.read32(to, active, context)?);
                let position = self.read32(position, active, context)?;
                let length = self.read32(length, active, context)?;
                let value = std::array::from_fn(|i| insert(from[i], to[i], position[i] & 255, length[i] & 255));
                self.write32(d, value, active);
            }
            Op::Float { f, d, a, b } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                let value = match f {
                    Float::Add => map_float(a, b, |a, b| a + b),
                    Float::Sub => map_float(a, b, |a, b| a - b),
                    Float::Mul => map_float(a, b, |a, b| a * b),
                    Float::Max => map_float(a, b, f32::max),
                    Float::Min => map_float(a, b, f32::min),
                };
                self.write32(d, value, active);
            }
            Op::FusedMultiplyAdd { d, a, b, c } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                let c = self.read32(c, active, context)?;
                let f = f32::from_bits;
                self.write32(d, std::array::from_fn(|i| f(a[i]).mul_add(f(b[i]), f(c[i])).to_bits()), active);
            }
            Op::Unary32 { f, d, a } => {
                let a = self.read32(a, active, context)?;
                self.write32(d, unary(f, a), active);
            }
            Op::Move64 { d, a } => {
                let a = self.read64(a, active)?;
                self.write64(d, a, active);
            }
            Op::SignExtend { d, a } => {
                let a = self.read32(a, active, context)?;
                self.write64(d, a.map(|a| i64::from(a as i32) as u64), active);
            }
            Op::ZeroExtend { d, a } => {
                let a = self.read32(a, active, context)?;
                self.write64(d, a.map(u64::from), active);
            }
            Op::Truncate { d, a } => {
                let a = self.read64(a, active)?;
                self.write32(d, a.map(|a| a as u32), active);
            }
            Op::Pack { half, d, high, low } => {
                let (high, low) = (self.read32(high, active, context)?, self.read32(low, active, context)?);
                let round = |x: u32| u32::from(crate::matrix::round(half, f32::from_bits(x)));
                self.write32(d, map2(high, low, |h, l| round(h) << 16 | round(l)), active);
            }
            Op::CompareSigned { f, d, a, b } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                let (a, b) = (a.map(|a| a as i32), b.map(|b| b as i32));
                self.write_predicate(d, compare(f, a, b), active);
            }
            Op::CompareUnsigned { f, d, a, b } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                self.write_predicate(d, compare(f, a, b), active);
            }
            Op::CompareFloat { f, d, a, b } => {
                let (a, b) = (self.read32(a, active, context)?, self.read32(b, active, context)?);
                self.write_predicate(d, compare(f, a.map(f32::from_bits), b.map(f32::from_bits)), active);
            }
            Op::CompareSigned64 { f, d, a, b } => {
                let (a, b) = (self.read64(a, active)?, self.read64(b, active)?);
                self.write_predicate(d, compare(f, a.map(|a| a as i64), b.map(|b| b as i64)), active);
            }
            Op::CompareUnsigned64 { f, d, a, b } => {
                let (a, b) = (self.read64(a, active)?, self.read64(b, active)?);
                self.write_predicate(d, compare(f, a, b), active);
            }
            Op::Logic { f, d, a, b } => {
                let (a, b) = (self.predicate(a, active)?, self.predicate(b, active)?);
                let value = match f {
                    Logic::And => a & b,
                    Logic::Or => a | b,
                    Logic::Xor => a ^ b,
                };
                self.write_predicate(d, value, active);
            }
            Op::MovePredicate { d, a } => {
                let a = self.predicate(a, active)?;
                self.write_predicate(d, a, active);
            }
            Op::NotPredicate { d, a } => {
                let a = self.predicate(a, active)?;
                self.write_predicate(d, !a, active);
            }
            Op::Select32 { d, a, b, p } => {
                let p = self.predicate(SP::Reg(p), active)?;
                let a = self.read32(a, active & p, context)?;
                let mut value = self.read32(b, active & !p, context)?;
                blend(&mut value, a, p);
                self.write32(d, value, active);
            }
            Op::Select64 { d, a, b, p } => {
                let p = self.predicate(SP::Reg(p), active)?;
                let a = self.read64(a, active & p)?;
                let mut value = self.read64(b, active & !p)?;
                blend(&mut value, a, p);
                self.write64(d, value, active);
            }
            Op::Parameter32 { d, offset } => {
                let bytes = context.parameters[offset..].first_chunk().copied().unwrap_or_default();
                self.write32(d, [u32::from_le_bytes(bytes); LANES], active);
            }
            Op::Parameter64 { d, offset } => {
                let bytes = context.parameters[offset..].first_chunk().copied().unwrap_or_default();
                self.write64(d, [u64::from_le_bytes(bytes); LANES], active);
            }
            Op::Load32 { d, from } => {
                let (addresses, mut value) = (self.address(from, active)?, [0; LANES]);
                for lane in lanes_of(active) {
                    let bytes = context.memory.read(aligned(addresses[lane], 4)?, 4)?;
                    value[lane] = u32::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default());
                }
                self.write32(d, value, active);
            }
            Op::Load64 { d, from } => {
                let (addresses, mut value) = (self.address(from, active)?, [0; LANES]);
                for lane in lanes_of(active) {
                    let bytes = context.memory.read(aligned(addresses[lane], 8)?, 8)?;
                    value[lane] = u64::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default());
                }
                self.write64(d, value, active);
            }
            Op::Store32 { to, a } => {
                let (addresses, value) = (self.address(to, active)?, self.read32(a, active, context)?);
                for lane in lanes_of(active) {
                    let to = context.memory.write(aligned(addresses[lane], 4)?, 4)?;
                    to.copy_from_slice(&value[lane].to_le_bytes());
                }
            }
            Op::Store64 { to, a } => {
                let (addresses, value) = (self.address(to, active)?, self.read64(a, active)?);
                for lane in lanes_of(active) {
                    let to = context.memory.write(aligned(addresses[lane], 8)?, 8)?;
                    to.copy_from_slice(&value[lane].to_le_bytes());
                }
            }
            Op::CopyAsync { to, from, bytes } => {
                let to = self.shared_address(to, active, context)?;
                let (from, bytes) = (self.address(from, active)?, self.read32(bytes, active, context)?);
                for lane in lanes_of(active) {
                    let from = match bytes[lane] {
                        0 => None,
                        16 => Some(aligned(from[lane], 16)?),
                        n => return Err(Fault::new(FaultKind::Undefined, format!("a copy of {n} bytes out of 16"))),
                    };
                    if let Some(from) = from {
                        context.memory.read(from, 16)?;
                    }
                    context.shared.begin_copy(to[lane], self.actor(lane, context))?;
                    self.copies[lane].open.push(Copy { to: to[lane], from });
                }
            }
            Op::CopyCommit => {
                for lane in lanes_of(active) {
                    let copies = &mut self.copies[lane];
                    copies.groups.push_back(std::mem::take(&mut copies.open));
                }
            }
            Op::CopyWait { groups } => {
                for lane in lanes_of(active) {
                    while self.copies[lane].groups.len() > groups as usize {
                        for copy in self.copies[lane].groups.pop_front().unwrap_or_default() {
                            let mut contents = [0; 16];
                            if let Some(from) = copy.from {
                                contents.copy_from_slice(context.memory.read(from, 16)?);
                            }
                            context.shared.end_copy(copy.to, contents, self.actor(lane, context))?;
                        }
                    }
                }
            }
            Op::LoadMatrices { .. }
            | Op::MatrixMultiply { .. }
            | Op::Shuffle { .. }
            | Op::Barrier
            | Op::Branch { .. }
            | Op::Exit => unreachable!("control flow and collectives are executed by `run`"),
        }
        Ok(())
    }
}

/// The numbers of the lanes in a mask.
pub fn lanes_of(mask: Mask) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

fn check_written(written: Mask, active: Mask, class: &str) -> Result<(), Fault> {
    if written & active == active {
        Ok(())
    } else {
        Err(Fault::new(FaultKind::Uninitialised, format!("a {class} register")))
    }
}

fn blend<T: std::marker::Copy>(register: &mut Lanes<T>, value: Lanes<T>, active: Mask) {
    if active == Mask::MAX {
        *register = value;
    } else {
        for lane in lanes_of(active) {
            register[lane] = value[lane];
        }
    }
}
