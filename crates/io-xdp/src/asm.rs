//! Small assembler for eBPF: the instructions that the program needs, with labels instead of counted jumps.
//!
//! ```text
//!   instruction (8 bytes):  op:8 | dst:4 src:4 | offset:16 | imm:32        in the byte order of the machine
//! ```
//! The instruction set is RFC 9669.

/// Instruction.
pub(crate) type Insn = u64;

/// Register. R10 is the frame pointer: the stack is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R6 = 6,
    R7,
    R8,
    R10 = 10,
}

/// Width of a memory access.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Width {
    Eight = 0x18,
    Four = 0x00,
    Two = 0x08,
    One = 0x10,
}

/// Position in the code. Earlier code may jump to it; it is set exactly once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// Kernel helper functions (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Helper {
    MapLookup = 1,
    RedirectMap = 51,
}

const LDX: u8 = 0x61;
const STX: u8 = 0x63;
const LOAD_64: u8 = 0x18;
const ADD_64_IMM: u8 = 0x07;
const OR_64_REG: u8 = 0x4f;
const SHIFT_LEFT_64_IMM: u8 = 0x67;
const MOV_64_IMM: u8 = 0xb7;
const MOV_64_REG: u8 = 0xbf;
const JUMP: u8 = 0x05;
const JUMP_EQ_IMM: u8 = 0x15;
const JUMP_NE_IMM: u8 = 0x55;
/// Like the one above for the lower half of the register: the immediate is not sign-extended.
const JUMP_32_NE_IMM: u8 = 0x56;
const JUMP_GT_REG: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// `src` of [`LOAD_64`] if the number is a map's file descriptor.
const PSEUDO_MAP_FD: u8 = 1;

/// Code under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Insn>,
    /// Position of each label, once it is set.
    labels: Vec<Option<usize>>,
    /// Jumps whose offset is not filled in yet.
    jumps: Vec<(usize, Label)>,
}

fn encode(op: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Insn {
    u64::from(op)
        | u64::from(dst | src << 4) << 8
        | u64::from(offset as u16) << 16
        | u64::from(imm as u32) << 32
}

impl Assembler {
    fn put(&mut self, op: u8, dst: Reg, src: u8, offset: i16, imm: i32) {
        self.code.push(encode(op, dst as u8, src, offset, imm));
    }

    fn jump_to(&mut self, op: u8, dst: Reg, src: u8, imm: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(op, dst, src, 0, imm);
    }

    /// Creates a label that is not set yet.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Sets a label to the present position.
    pub(crate) fn set(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `dst = imm`
    pub(crate) fn mov(&mut self, dst: Reg, imm: i32) {
        self.put(MOV_64_IMM, dst, 0, 0, imm);
    }

    /// `dst = src`
    pub(crate) fn mov_reg(&mut self, dst: Reg, src: Reg) {
        self.put(MOV_64_REG, dst, src as u8, 0, 0);
    }

    /// `dst += imm`
    pub(crate) fn add(&mut self, dst: Reg, imm: i32) {
        self.put(ADD_64_IMM, dst, 0, 0, imm);
    }

    /// `dst |= src`
    pub(crate) fn or(&mut self, dst: Reg, src: Reg) {
        self.put(OR_64_REG, dst, src as u8, 0, 0);
    }

    /// `dst <<= bits`
    pub(crate) fn shift_left(&mut self, dst: Reg, bits: i32) {
        self.put(SHIFT_LEFT_64_IMM, dst, 0, 0, bits);
    }

    /// `dst = *(src + offset)`, zero-extended.
    pub(crate) fn load(&mut self, width: Width, dst: Reg, src: Reg, offset: i16) {
        self.put(LDX | width as u8, dst, src as u8, offset, 0);
    }

    /// `*(dst + offset) = src`
    pub(crate) fn store(&mut self, width: Width, dst: Reg, offset: i16, src: Reg) {
        self.put(STX | width as u8, dst, src as u8, offset, 0);
    }

    /// `dst = the map`
    pub(crate) fn load_map(&mut self, dst: Reg, fd: i32) {
        self.put(LOAD_64, dst, PSEUDO_MAP_FD, 0, fd);
        self.code.push(0);
    }

    /// `r0 = helper(r1 ..)`; r1 to r5 are undefined afterwards.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.put(CALL, Reg::R0, 0, 0, helper as i32);
    }

    /// Jumps to `to`.
    pub(crate) fn jump(&mut self, to: Label) {
        self.jump_to(JUMP, Reg::R0, 0, 0, to);
    }

    /// Jumps to `to` if `dst == imm` (64 bits).
    pub(crate) fn jump_eq(&mut self, dst: Reg, imm: i32, to: Label) {
        self.jump_to(JUMP_EQ_IMM, dst, 0, imm, to);
    }

    /// Jumps to `to` if `dst != imm` (64 bits).
    pub(crate) fn jump_ne(&mut self, dst: Reg, imm: i32, to: Label) {
        self.jump_to(JUMP_NE_IMM, dst, 0, imm, to);
    }

    /// Jumps to `to` if the lower half of `dst` is not `imm`.
    pub(crate) fn jump_ne_32(&mut self, dst: Reg, imm: u32, to: Label) {
        self.jump_to(JUMP_32_NE_IMM, dst, 0, imm as i32, to);
    }

    /// Jumps to `to` if `a > b`, as addresses.
    pub(crate) fn jump_gt(&mut self, a: Reg, b: Reg, to: Label) {
        self.jump_to(JUMP_GT_REG, a, b as u8, 0, to);
    }

    /// Returns r0.
    pub(crate) fn exit(&mut self) {
        self.put(EXIT, Reg::R0, 0, 0, 0);
    }

    /// Returns the code with all jumps resolved.
    ///
    /// # Panics
    /// If a jump target was never set or is too far. This is a defect of the program, independent of its
    /// input.
    pub(crate) fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("a label that is jumped to is set");
            let offset = to as i64 - at as i64 - 1;
            let offset = i16::try_from(offset).expect("the program is short");
            self.code[at] |= u64::from(offset as u16) << 16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_follow_rfc_9669() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.load(Width::Two, Reg::R3, Reg::R7, 12);
        asm.jump_eq(Reg::R3, 0x0608, end);
        asm.load_map(Reg::R1, 7);
        asm.shift_left(Reg::R2, 32);
        asm.or(Reg::R2, Reg::R3);
        asm.store(Width::Eight, Reg::R10, -8, Reg::R2);
        asm.set(end);
        asm.mov(Reg::R0, 2);
        asm.exit();
        let bytes: Vec<[u8; 8]> = asm.finish().iter().map(|insn| insn.to_le_bytes()).collect();
        assert_eq!(
            bytes,
            [
                [0x69, 0x73, 12, 0, 0, 0, 0, 0],
                [0x15, 0x03, 5, 0, 0x08, 0x06, 0, 0],
                [0x18, 0x11, 0, 0, 7, 0, 0, 0],
                [0; 8],
                [0x67, 0x02, 0, 0, 32, 0, 0, 0],
                [0x4f, 0x32, 0, 0, 0, 0, 0, 0],
                [0x7b, 0x2a, 0xf8, 0xff, 0, 0, 0, 0],
                [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }
}
