"""DeepCoder task set and stdin/stdout grader for longrein."""
