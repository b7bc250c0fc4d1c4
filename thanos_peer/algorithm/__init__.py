"""The mathematics of THANOS, in numpy only: pure functions, no I/O, no clock, no logging.

Equation numbers in the comments are those of the paper ("Smoothing Gradient Tracking for Decentralized
Optimization over the Stiefel Manifold with Non-smooth Regularizers"): (1) the problem, (2) the Moreau
envelope, (3) prox, (4) the smoothed problem, (5) the update of X, (6) H, (7) the update of D, (8) sparse PCA,
(9) l1, (10) l2,1. Letters are the paper's; sigma is only ever the smoothing, mu only ever the weight.

What is written for one matrix (n, p) also takes a stack of them (d, n, p), one per agent, and gives each
agent the same bits.
"""
