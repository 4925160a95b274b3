//! PTX text to decoded kernels.
//!
//! It reads the language that NVRTC writes for the kernels here. An instruction it does not know is an error that
//! names the line: nothing is ever skipped.

use std::collections::HashMap;

use crate::instruction::*;

/// A PTX module.
#[derive(Debug)]
pub struct Module {
    /// `.version`, major and minor.
    pub version: (u32, u32),
    /// `.target sm_NN`.
    pub target: u32,
    pub kernels: Vec<Kernel>,
}

/// One `.entry`.
#[derive(Debug)]
pub struct Kernel {
    pub name: String,
    /// Offset and size of each parameter in the parameter buffer.
    pub parameters: Vec<(usize, usize)>,
    /// Bytes of static shared memory.
    pub shared_bytes: usize,
    /// `.maxntid`: the most threads a block may have.
    pub max_threads: usize,
    pub(crate) registers: Registers,
    pub(crate) code: Vec<Instruction>,
}

/// How many registers of each class a kernel declares.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Registers {
    pub r32: u16,
    pub r64: u16,
    pub predicates: u16,
}

/// A text that is not PTX as this interpreter knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// From 1; 0 for the module as a whole.
    pub line: usize,
    pub message: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

type Parsed<T> = Result<T, String>;

impl Module {
    /// Reads a module.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        let mut module = Module { version: (0, 0), target: 0, kernels: Vec::new() };
        let mut open: Option<KernelText> = None;
        for (index, raw) in text.lines().enumerate() {
            let line = raw.split("//").next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let error = |message: String| ParseError { line: index + 1, message };
            match &mut open {
                None => open = module.outside(line).map_err(error)?,
                Some(kernel) => {
                    if kernel.line(line, index as u32 + 1).map_err(error)? {
                        let finished = open.take().map(KernelText::finish).transpose().map_err(error)?;
                        module.kernels.extend(finished);
                    }
                }
            }
        }
        match open {
            Some(kernel) => Err(ParseError { line: 0, message: format!("{} has no end", kernel.kernel.name) }),
            None if module.kernels.is_empty() => Err(ParseError { line: 0, message: "no .entry".into() }),
            None => Ok(module),
        }
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// A line between kernels; the beginning of a kernel opens one.
    fn outside(&mut self, line: &str) -> Parsed<Option<KernelText>> {
        if let Some(version) = line.strip_prefix(".version ") {
            let (major, minor) = version.split_once('.').ok_or("a version without a dot")?;
            self.version = (number(major)?, number(minor)?);
        } else if let Some(target) = line.strip_prefix(".target sm_") {
            let digits: String = target.chars().take_while(char::is_ascii_digit).collect();
            self.target = number(&digits)?;
        } else if let Some(at) = line.find(".entry ") {
            let name = line[at + ".entry ".len()..].split('(').next().unwrap_or_default().trim();
            return Ok(Some(KernelText::new(name)));
        } else if line != ".address_size 64" {
            return Err(format!("unexpected outside a kernel: {line}"));
        }
        Ok(None)
    }
}

/// A kernel that is being read.
struct KernelText {
    kernel: Kernel,
    in_body: bool,
    parameter_bytes: usize,
    parameters: HashMap<String, usize>,
    shared: HashMap<String, u32>,
    /// Base register index of each declared prefix, with its class and number.
    registers: HashMap<String, (Class, u16, u16)>,
    labels: HashMap<String, u32>,
    /// Branches whose label is not known yet.
    branches: Vec<(usize, String)>,
    /// An instruction that has not met its semicolon.
    pending: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Class {
    R32,
    R64,
    Predicate,
}

impl KernelText {
    fn new(name: &str) -> KernelText {
        KernelText {
            kernel: Kernel {
                name: name.to_owned(),
                parameters: Vec::new(),
                shared_bytes: 0,
                max_threads: 1024,
                registers: Registers::default(),
                code: Vec::new(),
            },
            in_body: false,
            parameter_bytes: 0,
            parameters: HashMap::new(),
            shared: HashMap::new(),
            registers: HashMap::new(),
            labels: HashMap::new(),
            branches: Vec::new(),
            pending: String::new(),
        }
    }

    /// Reads a line; true at the end of the kernel.
    fn line(&mut self, line: &str, number: u32) -> Parsed<bool> {
        if !self.in_body {
            self.header(line)?;
        } else if line == "}" {
            return Ok(true);
        } else if let Some(declaration) = line.strip_prefix(".reg .") {
            self.declare_registers(declaration)?;
        } else if let Some(declaration) = line.strip_prefix(".shared .align ") {
            self.declare_shared(declaration)?;
        } else if let Some(label) = line.strip_suffix(':') {
            self.labels.insert(label.to_owned(), self.kernel.code.len() as u32);
        } else if !line.starts_with(".pragma") {
            self.pending.push_str(line);
            self.pending.push(' ');
            if line.ends_with(';') {
                let statement = std::mem::take(&mut self.pending);
                self.statement(statement.trim_end().trim_end_matches(';'), number)?;
            }
        }
        Ok(false)
    }

    fn header(&mut self, line: &str) -> Parsed<()> {
        if let Some(parameter) = line.strip_prefix(".param .") {
            let (kind, name) = parameter.split_once(' ').ok_or("a parameter without a name")?;
            let bytes: usize = number::<usize>(&kind[1..])? / 8;
            let offset = self.parameter_bytes.next_multiple_of(bytes);
            self.parameters.insert(name.trim_end_matches(',').to_owned(), offset);
            self.kernel.parameters.push((offset, bytes));
            self.parameter_bytes = offset + bytes;
        } else if let Some(sizes) = line.strip_prefix(".maxntid ") {
            let sizes: Vec<usize> = sizes.split(',').map(|n| number(n.trim())).collect::<Parsed<_>>()?;
            self.kernel.max_threads = sizes.iter().product();
        } else if line.starts_with('{') {
            self.in_body = true;
        } else if line != ")" && !line.starts_with(".minnctapersm") {
            return Err(format!("unexpected in a kernel's header: {line}"));
        }
        Ok(())
    }

    fn declare_registers(&mut self, declaration: &str) -> Parsed<()> {
        let (kind, names) = declaration.split_once(char::is_whitespace).ok_or("a register without a name")?;
        let class = match kind {
            "pred" => Class::Predicate,
            "b16" | "b32" | "f32" => Class::R32,
            "b64" => Class::R64,
            _ => return Err(format!("unknown register type .{kind}")),
        };
        let (prefix, count) =
            names.trim().trim_end_matches(">;").split_once('<').ok_or("registers that are not declared as a range")?;
        let count: u16 = number(count)?;
        let registers = &mut self.kernel.registers;
        let used = match class {
            Class::R32 => &mut registers.r32,
            Class::R64 => &mut registers.r64,
            Class::Predicate => &mut registers.predicates,
        };
        self.registers.insert(prefix.to_owned(), (class, *used, count));
        *used += count;
        Ok(())
    }

    fn declare_shared(&mut self, declaration: &str) -> Parsed<()> {
        let (align, rest) = declaration.split_once(' ').ok_or("shared memory without an alignment")?;
        let rest = rest.trim().strip_prefix(".b8 ").ok_or("shared memory that is not an array of bytes")?;
        let (name, size) = rest.trim_end_matches("];").split_once('[').ok_or("shared memory without a size")?;
        let start = self.kernel.shared_bytes.next_multiple_of(number(align)?);
        self.shared.insert(name.to_owned(), start as u32);
        self.kernel.shared_bytes = start + number::<usize>(size)?;
        Ok(())
    }

    fn statement(&mut self, text: &str, line: u32) -> Parsed<()> {
        let mut text = text.trim();
        let mut guard = None;
        if let Some(rest) = text.strip_prefix('@') {
            let (predicate, rest) = rest.split_once(char::is_whitespace).ok_or("a guard without an instruction")?;
            guard = Some((self.predicate(predicate.trim_start_matches('!'))?, !predicate.starts_with('!')));
            text = rest.trim();
        }
        let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let op = if opcode == "bra" || opcode == "bra.uni" {
            self.branches.push((self.kernel.code.len(), operands.trim().to_owned()));
            Op::Branch { target: u32::MAX }
        } else {
            // Braces group registers of a tensor core operand; their order says the same.
            let operands: Vec<&str> = operands
                .split(',')
                .map(|o| o.trim().trim_matches(['{', '}']).trim())
                .filter(|o| !o.is_empty())
                .collect();
            self.decode(opcode, &operands)?
        };
        self.kernel.code.push(Instruction { line, guard, op });
        Ok(())
    }

    fn finish(mut self) -> Parsed<Kernel> {
        for (index, label) in &self.branches {
            let target = *self.labels.get(label).ok_or_else(|| format!("no label {label}"))?;
            self.kernel.code[*index].op = Op::Branch { target };
        }
        // A label may stand at the very end.
        self.kernel.code.push(Instruction { line: 0, guard: None, op: Op::Exit });
        Ok(self.kernel)
    }

    fn decode(&self, opcode: &str, o: &[&str]) -> Parsed<Op> {
        let want = |n: usize| if o.len() == n { Ok(()) } else { Err(format!("{opcode} with {} operands", o.len())) };
        let parts: Vec<&str> = opcode.split('.').collect();
        let kind = parts[parts.len() - 1];
        match opcode {
            "ret" => return want(0).map(|()| Op::Exit),
            "bar.sync" => return if o == ["0"] { Ok(Op::Barrier) } else { Err("a barrier other than 0".into()) },
            "cp.async.commit_group" => return want(0).map(|()| Op::CopyCommit),
            "cp.async.wait_group" => return want(1).and_then(|()| Ok(Op::CopyWait { groups: number(o[0])? })),
            "cp.async.cg.shared.global" => {
                want(4)?;
                if o[2] != "16" {
                    return Err("a copy of other than 16 bytes".into());
                }
                let (to, from) = (self.shared_address(o[0])?, self.address(o[1])?);
                return Ok(Op::CopyAsync { to, from, bytes: self.s32(o[3])? });
            }
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16" | "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" => {
                want(5)?;
                let (d, from) = (self.r32s(o, 0)?, self.shared_address(o[4])?);
                return Ok(Op::LoadMatrices { transposed: parts.contains(&"trans"), d, from });
            }
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
            | "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" => {
                want(14)?;
                let half = if parts.contains(&"bf16") { Half::Bf16 } else { Half::F16 };
                let (d, a, b, c) = (self.r32s(o, 0)?, self.r32s(o, 4)?, self.r32s(o, 8)?, self.r32s(o, 10)?);
                return Ok(Op::MatrixMultiply { half, d, a, b, c });
            }
            "shfl.sync.bfly.b32" => {
                want(5)?;
                let (d, valid) = match o[0].split_once('|') {
                    Some((d, valid)) => (self.r32(d)?, Some(self.predicate(valid)?)),
                    None => (self.r32(o[0])?, None),
                };
                let (a, distance) = (self.s32(o[1])?, self.s32(o[2])?);
                return Ok(Op::Shuffle { d, valid, a, distance, clamp: self.s32(o[3])?, members: self.s32(o[4])? });
            }
            "cvt.rn.f16x2.f32" | "cvt.rn.bf16x2.f32" => {
                want(3)?;
                let half = if opcode.contains("bf16") { Half::Bf16 } else { Half::F16 };
                return Ok(Op::Pack { half, d: self.r32(o[0])?, high: self.s32(o[1])?, low: self.s32(o[2])? });
            }
            "cvt.s64.s32" => return Ok(Op::SignExtend { d: self.r64(o[0])?, a: self.s32(o[1])? }),
            "cvt.u64.u32" => return Ok(Op::ZeroExtend { d: self.r64(o[0])?, a: self.s32(o[1])? }),
            "cvt.u32.u64" => return Ok(Op::Truncate { d: self.r32(o[0])?, a: self.s64(o[1])? }),
            "cvta.to.global.u64" | "cvta.to.shared.u64" | "cvta.shared.u64" => {
                return Ok(Op::Move64 { d: self.r64(o[0])?, a: self.s64(o[1])? });
            }
            "fma.rn.f32" => {
                want(4)?;
                let (d, a, b, c) = (self.r32(o[0])?, self.s32(o[1])?, self.s32(o[2])?, self.s32(o[3])?);
                return Ok(Op::FusedMultiplyAdd { d, a, b, c });
            }
            "bfi.b32" => {
                want(5)?;
                let (d, from, to) = (self.r32(o[0])?, self.s32(o[1])?, self.s32(o[2])?);
                return Ok(Op::Insert { d, from, to, position: self.s32(o[3])?, length: self.s32(o[4])? });
            }
            _ => {}
        }
        if let Some(f) = unary(opcode) {
            want(2)?;
            return Ok(Op::Unary32 { f, d: self.r32(o[0])?, a: self.s32(o[1])? });
        }
        match (parts[0], kind) {
            ("mov", "u64" | "b64" | "s64") => Ok(Op::Move64 { d: self.r64(o[0])?, a: self.s64(o[1])? }),
            ("mov", "pred") => Ok(Op::MovePredicate { d: self.predicate(o[0])?, a: self.sp(o[1])? }),
            ("not", "pred") => Ok(Op::NotPredicate { d: self.predicate(o[0])?, a: self.sp(o[1])? }),
            ("and" | "or" | "xor", "pred") => {
                want(3)?;
                let f = match parts[0] {
                    "and" => Logic::And,
                    "or" => Logic::Or,
                    _ => Logic::Xor,
                };
                Ok(Op::Logic { f, d: self.predicate(o[0])?, a: self.sp(o[1])?, b: self.sp(o[2])? })
            }
            ("ld", _) if parts[1] == "param" => {
                let name = o[1].trim_start_matches('[').trim_end_matches(']');
                let offset = *self.parameters.get(name).ok_or_else(|| format!("no parameter {name}"))?;
                if kind.ends_with("64") {
                    Ok(Op::Parameter64 { d: self.r64(o[0])?, offset })
                } else {
                    Ok(Op::Parameter32 { d: self.r32(o[0])?, offset })
                }
            }
            ("ld", "u32" | "b32" | "f32" | "s32") if parts[1] == "global" && parts.len() == 3 => {
                Ok(Op::Load32 { d: self.r32(o[0])?, from: self.address(o[1])? })
            }
            ("ld", "u64" | "b64") if parts[1] == "global" && parts.len() == 3 => {
                Ok(Op::Load64 { d: self.r64(o[0])?, from: self.address(o[1])? })
            }
            ("st", "u32" | "b32" | "f32" | "s32") if parts[1] == "global" && parts.len() == 3 => {
                Ok(Op::Store32 { to: self.address(o[0])?, a: self.s32(o[1])? })
            }
            ("st", "u64" | "b64") if parts[1] == "global" && parts.len() == 3 => {
                Ok(Op::Store64 { to: self.address(o[0])?, a: self.s64(o[1])? })
            }
            ("setp", _) if parts.len() == 3 => {
                want(3)?;
                let f = comparison(parts[1]).ok_or_else(|| format!("unknown comparison in {opcode}"))?;
                let d = self.predicate(o[0])?;
                match kind {
                    "f32" => Ok(Op::CompareFloat { f, d, a: self.s32(o[1])?, b: self.s32(o[2])? }),
                    "s32" => Ok(Op::CompareSigned { f, d, a: self.s32(o[1])?, b: self.s32(o[2])? }),
                    "u32" | "b32" => Ok(Op::CompareUnsigned { f, d, a: self.s32(o[1])?, b: self.s32(o[2])? }),
                    "s64" => Ok(Op::CompareSigned64 { f, d, a: self.s64(o[1])?, b: self.s64(o[2])? }),
                    "u64" | "b64" => Ok(Op::CompareUnsigned64 { f, d, a: self.s64(o[1])?, b: self.s64(o[2])? }),
                    _ => Err(format!("unknown type in {opcode}")),
                }
            }
            ("selp", _) if parts.len() == 2 => {
                want(4)?;
                let p = self.predicate(o[3])?;
                if kind.ends_with("64") {
                    Ok(Op::Select64 { d: self.r64(o[0])?, a: self.s64(o[1])?, b: self.s64(o[2])?, p })
                } else {
                    Ok(Op::Select32 { d: self.r32(o[0])?, a: self.s32(o[1])?, b: self.s32(o[2])?, p })
                }
            }
            ("mul" | "mad", "s32" | "u32") if parts[1] == "wide" => {
                let signed = kind == "s32";
                let (d, a, b) = (self.r64(o[0])?, self.s32(o[1])?, self.s32(o[2])?);
                match o {
                    [_, _, _] => Ok(Op::MultiplyWide { signed, d, a, b }),
                    [_, _, _, c] => Ok(Op::MultiplyAddWide { signed, d, a, b, c: self.s64(c)? }),
                    _ => Err(format!("{opcode} with {} operands", o.len())),
                }
            }
            ("mad", "s32" | "u32") if parts[1] == "lo" => {
                want(4)?;
                let (d, a, b, c) = (self.r32(o[0])?, self.s32(o[1])?, self.s32(o[2])?, self.s32(o[3])?);
                Ok(Op::MultiplyAdd32 { d, a, b, c })
            }
            ("mad", "s64" | "u64") if parts[1] == "lo" => {
                want(4)?;
                let (d, a, b, c) = (self.r64(o[0])?, self.s64(o[1])?, self.s64(o[2])?, self.s64(o[3])?);
                Ok(Op::MultiplyAdd64 { d, a, b, c })
            }
            (name, "f32") if parts.len() == 2 && float(name).is_some() => {
                want(3)?;
                let f = float(name).unwrap_or(Float::Add);
                Ok(Op::Float { f, d: self.r32(o[0])?, a: self.s32(o[1])?, b: self.s32(o[2])? })
            }
            (name, _) if (parts.len() == 2 || parts[1..] == ["lo", kind]) && integer(name, kind).is_some() => {
                want(3)?;
                let f = integer(name, kind).unwrap_or(Integer::Add);
                if !kind.ends_with("64") {
                    Ok(Op::Integer32 { f, d: self.r32(o[0])?, a: self.s32(o[1])?, b: self.s32(o[2])? })
                } else if matches!(name, "shl" | "shr") {
                    Ok(Op::Shift64 { f, d: self.r64(o[0])?, a: self.s64(o[1])?, b: self.s32(o[2])? })
                } else {
                    Ok(Op::Integer64 { f, d: self.r64(o[0])?, a: self.s64(o[1])?, b: self.s64(o[2])? })
                }
            }
            _ => Err(format!("unsupported instruction {opcode}")),
        }
    }

    fn register(&self, name: &str, wanted: Class) -> Parsed<u16> {
        let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let prefix = &name[..name.len() - digits.len()];
        let (class, base, count) = *self.registers.get(prefix).ok_or_else(|| format!("no register {name}"))?;
        let index: u16 = number(digits)?;
        if class != wanted || index >= count {
            return Err(format!("{name} is no {wanted:?} register"));
        }
        Ok(base + index)
    }

    fn r32(&self, name: &str) -> Parsed<R32> {
        self.register(name, Class::R32)
    }

    fn r64(&self, name: &str) -> Parsed<R64> {
        self.register(name, Class::R64)
    }

    fn predicate(&self, name: &str) -> Parsed<P> {
        self.register(name, Class::Predicate)
    }

    fn r32s<const N: usize>(&self, operands: &[&str], first: usize) -> Parsed<[R32; N]> {
        let mut registers = [0; N];
        for (register, name) in registers.iter_mut().zip(&operands[first..]) {
            *register = self.r32(name)?;
        }
        Ok(registers)
    }

    fn s32(&self, text: &str) -> Parsed<S32> {
        if let Some(special) = special(text) {
            Ok(S32::Special(special))
        } else if text.starts_with('%') {
            self.r32(text).map(S32::Reg)
        } else if let Some(bits) = text.strip_prefix("0f") {
            u32::from_str_radix(bits, 16).map(S32::Value).map_err(|_| format!("not a float: {text}"))
        } else if let Some(address) = self.shared.get(text) {
            Ok(S32::Value(*address))
        } else {
            number::<i64>(text).map(|n| S32::Value(n as u32))
        }
    }

    fn s64(&self, text: &str) -> Parsed<S64> {
        if text.starts_with('%') {
            self.r64(text).map(S64::Reg)
        } else if let Some(address) = self.shared.get(text) {
            Ok(S64::Value(u64::from(*address)))
        } else {
            number::<i64>(text).map(|n| S64::Value(n as u64))
        }
    }

    fn sp(&self, text: &str) -> Parsed<SP> {
        if text.starts_with('%') { self.predicate(text).map(SP::Reg) } else { Ok(SP::Value(number::<i64>(text)? != 0)) }
    }

    fn address(&self, text: &str) -> Parsed<Address> {
        let (base, offset) = brackets(text)?;
        Ok(Address { base: self.s64(base)?, offset })
    }

    fn shared_address(&self, text: &str) -> Parsed<SharedAddress> {
        let (base, offset) = brackets(text)?;
        Ok(SharedAddress { base: self.s32(base)?, offset: offset as i32 })
    }
}

/// `[base+offset]`.
fn brackets(text: &str) -> Parsed<(&str, i64)> {
    let inner =
        text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or_else(|| format!("no address: {text}"))?;
    match inner.split_once('+') {
        Some((base, offset)) => Ok((base, number(offset)?)),
        None => Ok((inner, 0)),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Parsed<T> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

fn special(text: &str) -> Option<Special> {
    let (name, dimension) = text.strip_prefix('%')?.split_once('.')?;
    let dimension = ["x", "y", "z"].iter().position(|d| *d == dimension)? as u8;
    Some(match name {
        "tid" => Special::Thread(dimension),
        "ctaid" => Special::Block(dimension),
        "ntid" => Special::BlockSize(dimension),
        "nctaid" => Special::GridSize(dimension),
        _ => return None,
    })
}

fn comparison(name: &str) -> Option<Compare> {
    Some(match name {
        "eq" => Compare::Eq,
        "ne" => Compare::Ne,
        "lt" => Compare::Lt,
        "le" => Compare::Le,
        "gt" => Compare::Gt,
        "ge" => Compare::Ge,
        "ltu" => Compare::Ltu,
        "leu" => Compare::Leu,
        "gtu" => Compare::Gtu,
        "geu" => Compare::Geu,
        _ => return None,
    })
}

fn unary(opcode: &str) -> Option<Unary> {
    Some(match opcode {
        "mov.u32" | "mov.s32" | "mov.b32" | "mov.f32" => Unary::Move,
        "not.b32" => Unary::Not,
        "neg.s32" => Unary::NegateInteger,
        "neg.f32" => Unary::NegateFloat,
        "abs.f32" => Unary::AbsoluteFloat,
        "ex2.approx.ftz.f32" => Unary::Exp2,
        "lg2.approx.ftz.f32" => Unary::Log2,
        "rcp.rn.f32" => Unary::Reciprocal,
        _ => return None,
    })
}

fn float(name: &str) -> Option<Float> {
    Some(match name {
        "add" => Float::Add,
        "sub" => Float::Sub,
        "mul" => Float::Mul,
        "max" => Float::Max,
        "min" => Float::Min,
        _ => return None,
    })
}

fn integer(name: &str, kind: &str) -> Option<Integer> {
    let signed = match kind {
        "s32" | "s64" => true,
        "u32" | "u64" | "b32" | "b64" => false,
        _ => return None,
    };
    Some(match (name, signed) {
        ("add", _) => Integer::Add,
        ("sub", _) => Integer::Sub,
        ("mul", _) => Integer::Mul,
        ("div", true) => Integer::DivSigned,
        ("div", false) => Integer::DivUnsigned,
        ("rem", true) => Integer::RemSigned,
        ("rem", false) => Integer::RemUnsigned,
        ("max", true) => Integer::MaxSigned,
        ("max", false) => Integer::MaxUnsigned,
        ("min", true) => Integer::MinSigned,
        ("min", false) => Integer::MinUnsigned,
        ("and", _) => Integer::And,
        ("or", _) => Integer::Or,
        ("xor", _) => Integer::Xor,
        ("shl", _) => Integer::ShiftLeft,
        ("shr", true) => Integer::ShiftRightSigned,
        ("shr", false) => Integer::ShiftRightUnsigned,
        _ => return None,
    })
}
