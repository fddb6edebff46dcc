//! Vectors and unit quaternions.

/// A vector.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Vec3 {
    pub x: f32,
    pub y: f32,
    pub z: f32,
}

impl Vec3 {
    /// Zero.
    pub const ZERO: Self = Self::new(0.0, 0.0, 0.0);

    /// From its components.
    #[must_use]
    pub const fn new(x: f32, y: f32, z: f32) -> Self {
        Self { x, y, z }
    }

    /// Component by component.
    #[must_use]
    pub fn zip(self, o: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self::new(f(self.x, o.x), f(self.y, o.y), f(self.z, o.z))
    }

    /// Sum.
    #[must_use]
    pub fn plus(self, o: Self) -> Self {
        self.zip(o, |a, b| a + b)
    }

    /// Difference.
    #[must_use]
    pub fn minus(self, o: Self) -> Self {
        self.zip(o, |a, b| a - b)
    }

    /// Product with a number.
    #[must_use]
    pub fn scale(self, k: f32) -> Self {
        Self::new(self.x * k, self.y * k, self.z * k)
    }

    /// Product component by component.
    #[must_use]
    pub fn times(self, o: Self) -> Self {
        self.zip(o, |a, b| a * b)
    }

    /// Scalar product.
    #[must_use]
    pub fn dot(self, o: Self) -> f32 {
        self.x * o.x + self.y * o.y + self.z * o.z
    }

    /// Vector product.
    #[must_use]
    pub fn cross(self, o: Self) -> Self {
        Self::new(
            self.y * o.z - self.z * o.y,
            self.z * o.x - self.x * o.z,
            self.x * o.y - self.y * o.x,
        )
    }

    /// Length.
    #[must_use]
    pub fn norm(self) -> f32 {
        libm::sqrtf(self.dot(self))
    }

    /// Returns the vector with its length changed to 1; zero stays zero.
    #[must_use]
    pub fn unit(self) -> Self {
        let norm = self.norm();
        if norm > 0.0 { self.scale(1.0 / norm) } else { self }
    }

    /// Each component within `-limit` to `limit`.
    #[must_use]
    pub fn clamp(self, limit: Self) -> Self {
        self.zip(limit, |a, l| a.clamp(-l, l))
    }
}

/// A rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Quat {
    pub w: f32,
    pub v: Vec3,
}

impl Default for Quat {
    fn default() -> Self {
        Self::IDENTITY
    }
}

impl Quat {
    /// No rotation.
    pub const IDENTITY: Self = Self { w: 1.0, v: Vec3::ZERO };

    /// Rotation about a vector by its length.
    #[must_use]
    pub fn from_vector(r: Vec3) -> Self {
        let angle = r.norm();
        if angle < 1e-6 {
            return Self { w: 1.0, v: r.scale(0.5) };
        }
        Self { w: libm::cosf(angle * 0.5), v: r.scale(libm::sinf(angle * 0.5) / angle) }
    }

    /// Roll about x, then pitch about y, then yaw about z, of the world's axes.
    #[must_use]
    pub fn from_euler(roll: f32, pitch: f32, yaw: f32) -> Self {
        let about = |x, y, z| Self::from_vector(Vec3::new(x, y, z));
        about(0.0, 0.0, yaw).mul(about(0.0, pitch, 0.0)).mul(about(roll, 0.0, 0.0))
    }

    /// Roll, pitch and yaw.
    #[must_use]
    pub fn euler(self) -> [f32; 3] {
        let Self { w, v } = self;
        [
            libm::atan2f(2.0 * (w * v.x + v.y * v.z), 1.0 - 2.0 * (v.x * v.x + v.y * v.y)),
            libm::asinf((2.0 * (w * v.y - v.z * v.x)).clamp(-1.0, 1.0)),
            libm::atan2f(2.0 * (w * v.z + v.x * v.y), 1.0 - 2.0 * (v.y * v.y + v.z * v.z)),
        ]
    }

    /// This rotation after `o`.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub fn mul(self, o: Self) -> Self {
        Self {
            w: self.w * o.w - self.v.dot(o.v),
            v: o.v.scale(self.w).plus(self.v.scale(o.w)).plus(self.v.cross(o.v)),
        }
    }

    /// The inverse rotation.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self { w: self.w, v: self.v.scale(-1.0) }
    }

    /// Turns a vector.
    #[must_use]
    pub fn rotate(self, r: Vec3) -> Vec3 {
        let t = self.v.cross(r).scale(2.0);
        r.plus(t.scale(self.w)).plus(self.v.cross(t))
    }

    /// Goes on turning with body rates for a short time. First order and
    /// normalised: at 1 kHz and 10 rad/s it is off by 4e-8 rad a step.
    #[must_use]
    pub fn integrate(self, rates: Vec3, dt: f32) -> Self {
        let half = Self { w: 0.0, v: rates.scale(0.5 * dt) };
        let step = self.mul(half);
        Self { w: self.w + step.w, v: self.v.plus(step.v) }.normalised()
    }

    /// Length brought back to 1.
    #[must_use]
    pub fn normalised(self) -> Self {
        // One Newton step for 1/sqrt near 1: cheaper than a root, and exact
        // enough for what a millisecond can drift.
        let k = 1.5 - 0.5 * (self.w * self.w + self.v.dot(self.v));
        Self { w: self.w * k, v: self.v.scale(k) }
    }

    /// The shorter way to turn from this attitude to another, as a vector in body axes.
    #[must_use]
    pub fn to(self, o: Self) -> Vec3 {
        let d = self.inverse().mul(o);
        let sign = if d.w < 0.0 { -1.0 } else { 1.0 };
        let sine = d.v.norm();
        if sine < 1e-6 {
            return d.v.scale(2.0 * sign);
        }
        let angle = 2.0 * libm::atan2f(sine, d.w * sign);
        d.v.scale(sign * angle / sine)
    }

    /// [`Quat::to`] for attitudes that are near, without a function of a library: the first terms of a series. It is
    /// off by 1e-5 of a radian at half a radian, and too short beyond.
    #[must_use]
    pub fn near(self, o: Self) -> Vec3 {
        let d = self.inverse().mul(o);
        let sign = if d.w < 0.0 { -1.0 } else { 1.0 };
        let s = d.v.dot(d.v);
        d.v.scale(2.0 * sign * (1.0 + s * (0.166_666_67 + s * 0.075)))
    }

    /// Angle between two attitudes.
    #[must_use]
    pub fn angle_to(self, o: Self) -> f32 {
        self.to(o).norm()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn euler_angles_come_back() {
        for (roll, pitch, yaw) in [(0.1, 0.2, 0.3), (-0.7, 0.5, -3.0), (0.0, -1.2, 2.0)] {
            let e = Quat::from_euler(roll, pitch, yaw).euler();
            for (a, b) in e.iter().zip([roll, pitch, yaw]) {
                assert!((a - b).abs() < 1e-5, "{e:?}");
            }
        }
    }

    #[test]
    fn the_way_between_attitudes_leads_there() {
        let a = Quat::from_euler(0.4, -0.3, 2.0);
        let b = Quat::from_euler(-0.5, 0.1, -2.5);
        assert!(a.mul(Quat::from_vector(a.to(b))).angle_to(b) < 1e-5);
    }

    #[test]
    fn a_short_way_needs_no_library() {
        let a = Quat::from_euler(0.4, -0.3, 2.0);
        for b in [[0.4, -0.3, 2.0], [0.5, -0.25, 1.9], [0.2, -0.5, 2.3]] {
            let b = Quat::from_euler(b[0], b[1], b[2]);
            for b in [b, Quat { w: -b.w, v: b.v.scale(-1.0) }] {
                assert!(a.near(b).minus(a.to(b)).norm() < 2e-5, "{:?} {:?}", a.near(b), a.to(b));
            }
        }
    }

    #[test]
    fn integration_follows_a_constant_rate() {
        let rate = Vec3::new(0.3, -1.0, 0.5);
        let mut q = Quat::IDENTITY;
        for _ in 0..1000 {
            q = q.integrate(rate, 0.001);
        }
        assert!(q.angle_to(Quat::from_vector(rate)) < 1e-4);
    }
}
