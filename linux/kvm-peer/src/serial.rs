//! A 16550 that only transmits, and always at once (National Semiconductor
//! PC16550D, section 8).

use std::io::Write;

/// First port of COM1.
const BASE: u16 = 0x3F8;
/// Interrupt enable register: transmitter holding register empty.
const THR_EMPTY: u8 = 1 << 1;
/// Interrupt identification: nothing pending, or the transmitter is empty.
const NOTHING: u8 = 1;
const TRANSMITTER: u8 = 2;
/// Line status: holding register and transmitter are empty.
const EMPTY: u8 = 0x60;
/// Modem status: carrier, data set ready, clear to send.
const READY: u8 = 0xB0;

/// The port's state.
#[derive(Default)]
pub struct Serial {
    divisor_latch: bool,
    enabled: u8,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    pending: bool,
    raised: bool,
}

impl Serial {
    /// A byte written to a port.
    pub fn write(&mut self, port: u16, value: u8) {
        match port.wrapping_sub(BASE) {
            0 | 1 if self.divisor_latch => {}
            0 => {
                let mut out = std::io::stdout();
                let _ = out.write_all(&[value]).and_then(|()| out.flush());
                self.raise();
            }
            1 => {
                self.enabled = value & 0xF;
                self.raise();
            }
            3 => {
                self.line_control = value;
                self.divisor_latch = value & 0x80 != 0;
            }
            4 => self.modem_control = value,
            7 => self.scratch = value,
            _ => {}
        }
    }

    /// A byte read from a port.
    pub fn read(&mut self, port: u16) -> u8 {
        match port.wrapping_sub(BASE) {
            0 => 0,
            1 if self.divisor_latch => 0,
            1 => self.enabled,
            2 => match std::mem::take(&mut self.pending) {
                true => TRANSMITTER,
                false => NOTHING,
            },
            3 => self.line_control,
            4 => self.modem_control,
            5 => EMPTY,
            6 => READY,
            7 => self.scratch,
            _ => 0xFF,
        }
    }

    /// Tells if an interrupt is due since the last call.
    pub fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.raised)
    }

    fn raise(&mut self) {
        if self.enabled & THR_EMPTY != 0 {
            self.pending = true;
            self.raised = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_only_when_asked_to() {
        let mut serial = Serial::default();
        serial.write(BASE + 3, 0x03);
        serial.write(BASE + 1, 0);
        assert!(!serial.take_interrupt());
        assert_eq!(serial.read(BASE + 2), NOTHING);
        serial.write(BASE + 1, THR_EMPTY);
        assert!(serial.take_interrupt());
        assert_eq!(serial.read(BASE + 2), TRANSMITTER);
        assert_eq!(serial.read(BASE + 2), NOTHING);
    }

    #[test]
    fn absent_ports_read_all_ones() {
        let mut serial = Serial::default();
        assert_eq!(serial.read(0x2F8), 0xFF);
        assert_eq!(serial.read(0x61), 0xFF);
        assert_eq!(serial.read(BASE + 5), EMPTY);
    }
}
