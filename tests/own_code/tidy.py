"""A module that Python finds by its name."""


class Tidy:
    """The mean square of the projected samples."""

    def __init__(self, samples):
        self.samples = samples

    def value(self, X):
        return ((self.samples @ X) ** 2).mean()

    def gradient(self, X):
        return 2 * self.samples.T @ (self.samples @ X) / (len(self.samples) * X.shape[1])
