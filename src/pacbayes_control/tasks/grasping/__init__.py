"""The paper's arm that grasps objects it has never seen (Section 7.2)."""
