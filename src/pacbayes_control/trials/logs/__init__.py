"""Reading evaluation logs; where it is not clear what they say, an error names the option."""
